"""Shards that are read from a checkpoint against those of the whole model.

One process is each of several in turn: torch's fake process group has ranks that talk to nobody.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from huggingface_hub import save_torch_state_dict
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.testing._internal.distributed.fake_pg import FakeStore

from mmrl.models import load_model
from mmrl.models.loading import save_model
from mmrl.models.network.network import Network
from mmrl.models.quantization_config import QuantizationConfig
from mmrl.models.weights import read_rows
from mmrl.pretrained.model_config import LoraConfig, ModelConfig
from mmrl.runtime.launch import leave_out_kernels
from mmrl.runtime.precision import widen
from mmrl.runtime.sharding.loading import divide_parameters, read_shards
from mmrl.runtime.sharding.sharding import find_blocks
from mmrl.runtime.sharding.tensors import held_part
from mmrl.training.trainable import train_parts
from tests.models.amused import write_amused
from tests.models.networks import CONFIG, small_network
from tests.models.small_policies import POLICIES, small_policy

FAMILIES = sorted(POLICIES)
CPU = torch.device("cpu")


@contextmanager
def acting_as(rank: int, processes: int) -> Iterator[None]:
    """Let this process be one of several."""
    init = torch.distributed.init_process_group
    init("fake", store=FakeStore(), rank=rank, world_size=processes)
    try:
        yield
    finally:
        torch.distributed.destroy_process_group()


def held(build: Callable[[bool], nn.Module], shape: tuple[int, ...]) -> dict[str, Tensor]:
    """What this process holds of a model whose loading is deferred."""
    model = build(True)
    mesh = init_device_mesh("cpu", shape, mesh_dim_names=("replicate", "shard")[-len(shape) :])
    for unit in [*find_blocks(model), model]:
        fully_shard(unit, mesh=mesh)
    read_shards(model, CPU)
    named = model.named_parameters(remove_duplicate=False)
    return {name: p.to_local() for name, p in named if isinstance(p, DTensor)}


def assert_parts(build: Callable[[bool], nn.Module], shape: tuple[int, ...] = (3,)) -> None:
    """Every process must hold the rows of the whole model that are its own, to the last bit."""
    processes = torch.Size(shape).numel()
    whole = dict(build(False).named_parameters(remove_duplicate=False))
    for rank in range(processes) if processes < 10 else (0, 40, processes - 1):
        with acting_as(rank, processes):
            found = held(build, shape)
        assert found.keys() == whole.keys()
        for name, tensor in whole.items():
            rows = dict(enumerate(tensor.chunk(shape[-1]))).get(rank % shape[-1], tensor[:0])
            assert found[name].dtype == tensor.dtype, name
            assert torch.equal(found[name], rows), name


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """A checkpoint in several files, with 41 rows of words."""
    model = small_network(vocab_size=41)
    model.public_config = {**CONFIG, "vocab_size": 41, "embedding_size": 41}
    save_model(model, tmp_path / "saved")
    tensors = load_file(tmp_path / "saved" / "model.safetensors")
    save_torch_state_dict(tensors, tmp_path / "saved", max_shard_size=20_000)
    assert len(list((tmp_path / "saved").glob("*.safetensors"))) > 1
    return tmp_path / "saved"


def adapted(network: Network, path: Path, seed: int = 0, **lora: object) -> Network:
    """With an adapter, which continues that of the path if it is one."""
    settings = LoraConfig(r=3, target_modules=["q", "down"], **lora)  # type: ignore[arg-type]
    train_parts(network, ModelConfig(path=str(path), lora=settings), seed)
    return network


@pytest.mark.parametrize("family", FAMILIES)
def test_the_shards_of_every_family_are_rows_of_its_checkpoint(family: str, tmp_path: Path) -> None:
    if family == "amused":  # a directory of other parts beside it
        pytest.importorskip("diffusers")
        write_amused(tmp_path)
    else:
        save_model(small_policy(family).network, tmp_path)
    assert_parts(lambda deferred: load_model(tmp_path, deferred=deferred))


@pytest.mark.parametrize("shape", [(1,), (5,), (64,), (2, 3)])
def test_rows_that_do_not_divide_come_from_several_files(
    saved: Path, shape: tuple[int, ...]
) -> None:
    assert_parts(lambda deferred: load_model(saved, deferred=deferred), shape)


def test_a_shard_is_rounded_as_the_whole_tensor_is(saved: Path) -> None:
    def build(deferred: bool) -> Network:
        network = load_model(saved, "bfloat16", deferred=deferred)
        network.embed.requires_grad_(False)
        widen(network)
        return network

    assert_parts(build)
    kinds = {name: parameter.dtype for name, parameter in build(True).named_parameters()}
    assert kinds["embed.weight"] == torch.bfloat16 and kinds["head.weight"] == torch.float32


def test_tied_weights_stay_one_parameter(tmp_path: Path) -> None:
    model = small_network(tied_head=True)
    model.public_config = {**CONFIG, "weight_tying": True}
    save_model(model, tmp_path)
    with acting_as(1, 3):
        network = load_model(tmp_path, deferred=True)
        fully_shard(network)
        read_shards(network, CPU)
        assert network.head.weight is network.get_parameter("embed.weight")
    assert_parts(lambda deferred: load_model(tmp_path, deferred=deferred))


@pytest.mark.parametrize("dora", [False, True])
def test_a_continued_adapter_is_that_of_the_whole_model(
    saved: Path, tmp_path: Path, dora: bool
) -> None:
    moved, folder = load_model(saved), tmp_path / "adapter"
    model = ModelConfig(
        path=str(saved),
        lora=LoraConfig(r=3, target_modules=["q", "down"], use_dora=dora),
        modules_to_train=["head"],
    )
    train_parts(moved, model, 0)
    for parameter in (p for p in moved.parameters() if p.requires_grad):
        parameter.data += 0.1 * torch.randn(parameter.shape, generator=torch.manual_seed(1))
    save_model(moved, folder)
    with pytest.raises(ValueError, match="processes share the weights.*Merge it first"):
        load_model(folder, deferred=True)

    def build(deferred: bool) -> Network:
        network = load_model(folder, merge_adapter=False, deferred=deferred)
        return adapted(network, folder, use_dora=dora)

    assert_parts(build)
    with acting_as(0, 1):
        found = held(build, (1,))
    assert torch.equal(found["head.weight"], moved.head.weight)


@pytest.mark.slow
@pytest.mark.parametrize("pieces", [1, 3, 64])
def test_the_slices_of_zero3_are_those_of_the_whole_model(
    saved: Path, monkeypatch: pytest.MonkeyPatch, pieces: int
) -> None:
    pytest.importorskip("deepspeed")
    leave_out_kernels()
    monkeypatch.setenv("LOCAL_RANK", "0")
    settings = {"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 3}}
    model = adapted(load_model(saved, "bfloat16"), saved, seed=5)
    whole = {name: p.detach() for name, p in model.named_parameters()}
    for rank in range(pieces) if pieces < 10 else (0, 40, pieces - 1):
        with acting_as(rank, pieces):
            network = adapted(load_model(saved, "bfloat16", deferred=True), saved, seed=5)
            divide_parameters(network, settings)
            assert network.stored is None
            found = {name: held_part(p) for name, p in network.named_parameters()}
            assert all(p.numel() == 0 for p in network.parameters())
        assert found.keys() == whole.keys()
        for name, tensor in whole.items():
            size = -(-tensor.numel() // pieces)
            own = tensor.flatten()[rank * size : (rank + 1) * size]
            assert found[name].numel() == size and found[name].dtype == tensor.dtype, name
            assert torch.equal(found[name][: own.numel()], own), name


def test_a_tensor_is_read_by_its_rows_alone(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = []

    def count(path: Path, name: str, rows: slice) -> Tensor:
        tensor = read_rows(path, name, rows)
        counts.append(tensor.numel())
        return tensor

    every = sum(p.numel() for p in load_model(saved).parameters())
    monkeypatch.setattr("mmrl.models.weights.read_rows", count)
    with acting_as(1, 4):
        held(lambda deferred: load_model(saved, deferred=deferred), (4,))
    assert every / 4.2 < sum(counts) < every / 3.8


def test_what_cannot_be_read_is_refused_before_any_weight_is(
    saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise AssertionError("a weight is read")

    monkeypatch.setattr("mmrl.models.weights.read_rows", fail)
    first, second, *_ = sorted(saved.glob("*.safetensors"))
    with pytest.raises(ValueError, match="4 bits are not sharded.*multi_gpu.yaml"):
        load_model(saved, quantization_config=QuantizationConfig(), deferred=True)
    whole = first.read_bytes()
    first.write_bytes(whole[:-5])
    with pytest.raises(ValueError, match=f"{first.name}.*truncated"):
        load_model(saved, deferred=True)
    first.write_bytes(whole)
    second.unlink()
    with pytest.raises(FileNotFoundError, match=second.name):
        load_model(saved, deferred=True)
