"""What rollouts gather of weights that processes share, and what is said of it."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, Literal

import pytest
import torch
from torch.distributed.tensor import DTensor

from mmrl.models import Policy, load_policy
from mmrl.pretrained.model_config import policy_options
from mmrl.rl_config import RLConfig
from mmrl.runtime.sharding.fsdp2 import FSDP2
from mmrl.runtime.sharding.rollout_weights import choose_rollout_weights
from mmrl.training.trainable import train_parts
from tests.mmrl.runs import LORA, run_config

GIB = 2**30


@pytest.fixture
def one_process() -> Iterator[None]:
    """A process group of this process alone."""
    store = torch.distributed.HashStore()
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        yield
    finally:
        torch.distributed.destroy_process_group()


def shared_policy(config: RLConfig, wish: Literal["whole", "by_block", "auto"]) -> Policy:
    """The policy of a run, shared by FSDP2."""
    policy = load_policy(**policy_options(config.model))
    policy.model = train_parts(policy.network, config.model, 0)
    accelerator: Any = SimpleNamespace(device=torch.device("cpu"))
    FSDP2(accelerator).shard_policy(policy, wish)
    return policy


def shared_names(policy: Policy) -> set[str]:
    """Names of the weights of which a process holds a part."""
    return {name for name, p in policy.model.named_parameters() if isinstance(p, DTensor)}


def test_with_lora_fsdp2_gathers_the_adapter_alone_for_a_rollout_phase(
    world: SimpleNamespace, tmp_path: Any, one_process: None
) -> None:
    config = run_config(world, tmp_path, lora=LORA)
    policy = shared_policy(config, "whole")
    trained = {name for name, p in policy.model.named_parameters() if p.requires_grad}
    assert shared_names(policy) == trained and all(".lora_" in name for name in trained)
    with policy.sampling(False):
        assert not shared_names(policy), "gathered once, for all forward passes inside"
    assert shared_names(policy) == trained


def test_by_block_fsdp2_shares_what_is_not_trained_too(
    world: SimpleNamespace, tmp_path: Any, one_process: None
) -> None:
    policy = shared_policy(run_config(world, tmp_path, lora=LORA), "by_block")
    assert shared_names(policy) == {name for name, _ in policy.model.named_parameters()}


def test_the_log_of_a_run_says_what_rollouts_gather_and_why(
    world: SimpleNamespace,
    tmp_path: Any,
    one_process: None,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("mmrl.runtime.sharding.rollout_weights.device_memory", lambda _: 64 * GIB)
    with caplog.at_level("INFO", "mmrl"):
        shared_policy(run_config(world, tmp_path), "auto")
    [line] = [line for line in caplog.messages if line.startswith("weights: ")]
    assert line == "weights: rollouts gather them whole (rollout_weights: auto)"


@pytest.mark.parametrize(
    ("wish", "memory", "choice"),
    [
        ("auto", 80 * GIB, "whole"),
        ("auto", 24 * GIB, "by_block"),
        ("whole", 0, "whole"),
        ("by_block", 80 * GIB, "by_block"),
    ],
)
def test_auto_is_whole_where_weights_take_at_most_half_of_the_memory(
    wish: Any, memory: float, choice: str
) -> None:
    assert choose_rollout_weights(wish, 16 * GIB, memory) == choice
