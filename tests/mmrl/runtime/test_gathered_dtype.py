"""FSDP2 under bfloat16 autocast: what is gathered has half the bytes, and the numbers are those of
autocast on whole weights."""

import copy
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from mmrl.models.network.norm import RMSNorm
from mmrl.runtime.precision import autocast_forward
from mmrl.runtime.sharding.fsdp2 import FSDP2
from tests.models.networks import small_network

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def one_process() -> Iterator[None]:
    """A process group of this process alone."""
    store = torch.distributed.HashStore()
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        yield
    finally:
        torch.distributed.destroy_process_group()


def gathered(network: nn.Module) -> dict[type, set[torch.dtype]]:
    """Dtypes of the weights that layers of blocks compute with, noted in every forward pass."""
    found: dict[type, set[torch.dtype]] = {nn.Linear: set(), RMSNorm: set()}

    def note(module: Any, _: Any) -> None:
        found[nn.Linear if isinstance(module, nn.Linear) else RMSNorm].add(module.weight.dtype)

    for module in network.blocks.modules():  # type: ignore[union-attr, operator]
        if isinstance(module, nn.Linear | RMSNorm):
            module.register_forward_pre_hook(note)
    return found


def update(network: nn.Module) -> tuple[Tensor, dict[str, Tensor]]:
    """Logits, and the gradients of two micro-batches."""
    autocast_forward(network, CPU)
    tokens = torch.arange(20).reshape(2, 10)
    for rows in (tokens[:1], tokens[1:]):
        network(rows).logits.logsumexp(-1).sum().backward()
    with torch.no_grad():
        logits = network(tokens).logits
    gradients = {n: p.grad for n, p in network.named_parameters() if p.grad is not None}
    whole = {n: getattr(g, "full_tensor", lambda g=g: g)() for n, g in gradients.items()}
    return logits, whole


@pytest.mark.parametrize("checkpointing", [False, True])
def test_blocks_gather_bfloat16_and_compute_what_autocast_does(checkpointing: bool) -> None:
    plain = small_network()
    plain.gradient_checkpointing = checkpointing
    sharded = copy.deepcopy(plain)
    accelerator: Any = SimpleNamespace(device=CPU)
    FSDP2(accelerator, half=True).shard(sharded)
    found = gathered(sharded)
    (logits, gradients), (others, theirs) = update(plain), update(sharded)
    assert found == {nn.Linear: {torch.bfloat16}, RMSNorm: {torch.float32}}
    assert torch.equal(logits, others)
    assert gradients.keys() == theirs.keys()
    for name, gradient in gradients.items():
        assert theirs[name].dtype == torch.float32
        tolerance = 0 if "blocks" in name else 1e-5  # float32 is summed in another order
        torch.testing.assert_close(theirs[name], gradient, rtol=0, atol=tolerance, msg=name)


@pytest.mark.parametrize(("half", "dtype"), [(False, torch.float32), (True, torch.float64)])
def test_other_runs_gather_weights_as_they_are(half: bool, dtype: torch.dtype) -> None:
    network = small_network().to(dtype)
    accelerator: Any = SimpleNamespace(device=CPU)
    FSDP2(accelerator, half=half).shard(network)
    found = gathered(network)
    network(torch.arange(10)[None])
    assert found == {nn.Linear: {dtype}, RMSNorm: {dtype}}
