"""FSDP2 on one process: what is gathered for a rollout phase, and in which precision.

Under bfloat16 autocast it has half the bytes, and the numbers are those of autocast on whole
weights.
"""

import copy
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, Literal

import pytest
import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from mmrl.models import Policy, load_policy
from mmrl.models.network.attention import RMSNorm
from mmrl.pretrained.model_config import policy_options
from mmrl.rl_config import RLConfig
from mmrl.runtime.precision import autocast_forward
from mmrl.runtime.sharding.fsdp2 import FSDP2
from mmrl.runtime.sharding.sampling import gathers_once
from mmrl.training.trainable import train_parts
from tests.mmrl.runs import LORA, World, run_config
from tests.models.networks import small_network

CPU, GIB = torch.device("cpu"), 2**30
ACCELERATOR: Any = SimpleNamespace(device=CPU)


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
    FSDP2(ACCELERATOR, half=True).shard(sharded)
    found = gathered(sharded)
    (logits, gradients), (others, theirs) = update(plain), update(sharded)
    assert found == {nn.Linear: {torch.bfloat16}, RMSNorm: {torch.float32}}
    assert torch.equal(logits, others) and gradients.keys() == theirs.keys()
    for name, gradient in gradients.items():
        assert theirs[name].dtype == torch.float32
        tolerance = 0 if "blocks" in name else 1e-5  # float32 is summed in another order
        torch.testing.assert_close(theirs[name], gradient, rtol=0, atol=tolerance, msg=name)


@pytest.mark.parametrize(("half", "dtype"), [(False, torch.float32), (True, torch.float64)])
def test_other_runs_gather_weights_as_they_are(half: bool, dtype: torch.dtype) -> None:
    network = small_network().to(dtype)
    FSDP2(ACCELERATOR, half=half).shard(network)
    found = gathered(network)
    network(torch.arange(10)[None])
    assert found == {nn.Linear: {dtype}, RMSNorm: {dtype}}


def shared_policy(config: RLConfig, wish: Literal["whole", "by_block", "auto"]) -> Policy:
    """The policy of a run, shared by FSDP2."""
    policy = load_policy(**policy_options(config.model))
    policy.model = train_parts(policy.network, config.model, 0)
    FSDP2(ACCELERATOR).shard_policy(policy, wish)
    return policy


def shared_names(policy: Policy) -> set[str]:
    """Names of the weights of which a process holds a part."""
    return {name for name, p in policy.model.named_parameters() if isinstance(p, DTensor)}


def test_with_lora_fsdp2_gathers_the_adapter_alone_for_a_rollout_phase(
    world: World, tmp_path: Any
) -> None:
    config = run_config(world, tmp_path, lora=LORA)
    policy = shared_policy(config, "whole")
    trained = {name for name, p in policy.model.named_parameters() if p.requires_grad}
    assert shared_names(policy) == trained and all(".lora_" in name for name in trained)
    with policy.sampling(False):
        assert not shared_names(policy), "gathered once, for all forward passes inside"
    assert shared_names(policy) == trained


def test_by_block_fsdp2_shares_what_is_not_trained_too(world: World, tmp_path: Any) -> None:
    policy = shared_policy(run_config(world, tmp_path, lora=LORA), "by_block")
    assert shared_names(policy) == {name for name, _ in policy.model.named_parameters()}


def test_the_log_of_a_run_says_what_rollouts_gather_and_why(
    world: World, tmp_path: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mmrl.runtime.sharding.sampling.device_memory", lambda _: 64 * GIB)
    with caplog.at_level("INFO", "mmrl"):
        shared_policy(run_config(world, tmp_path), "auto")
    [line] = [line for line in caplog.messages if line.startswith("weights: ")]
    assert line.endswith("rollouts gather them whole (rollout_weights: auto)")


@pytest.mark.parametrize(
    ("wish", "memory", "choice"),
    [("auto", 32, "whole"), ("auto", 31, "by_block"), ("auto", 0, "by_block")]
    + [("whole", 0, "whole"), ("by_block", 80, "by_block")],
)
def test_rollouts_have_whole_weights_where_they_take_half_of_the_smallest_device(
    wish: Any, memory: int, choice: str
) -> None:
    assert gathers_once(wish, 16 * GIB, memory * GIB) == (choice == "whole")
