"""Every way of launching a run is the same run: launch configurations for GPUs, on the CPU."""

import functools
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from mmrl.runtime.placement import read_placement
from mmrl.runtime.sharding.rollout_weights import choose_rollout_weights
from tests.mmrl import ways
from tests.mmrl.same_runs import close, equal_metrics
from tests.mmrl.sharded_runs import reinforce

SHORT = {"max_steps": 2, "eval_steps": 1, "save_steps": 2}
FOUR = {"task": {"num_prompts": 4, "num_generations": 2}, "per_device_train_batch_size": 2}
"""Groups for four processes."""
PARTS = {"logits_budget": 3 * 256 * 8}
"""Three rows of float64 logits at once."""

WAYS = {
    "offload": ("fsdp2_offload.yaml", 2, "full", {}),
    "whole-adapter": ("fsdp2.yaml", 2, "lora", {"rollout_weights": "whole"}),
    "parts-of-logits": ("fsdp2.yaml", 2, "full", {"rollout_weights": "by_block", **PARTS}),
    "two-nodes": ("two_nodes/multi_gpu.yaml", 2, "full", {}),
    "two-nodes-sharded": ("two_nodes/fsdp2.yaml", 2, "lora", {"rollout_weights": "by_block"}),
    "hsdp": ("two_nodes/hsdp.yaml", 4, "value", FOUR),
    "four": ("multi_gpu.yaml", 4, "value", FOUR),
    "four-sharded": ("fsdp2.yaml", 4, "value", FOUR),
    "zero2-nodes": ("two_nodes/zero2.yaml", 2, "lora", {}),
    "zero3-nodes": ("two_nodes/zero3.yaml", 2, "full", {"rollout_weights": "by_block", **PARTS}),
    "zero3-offload": ("zero3_offload.yaml", 2, "value", {}),
    "four-zero2": ("zero2.yaml", 4, "value", FOUR),
    "four-zero3": ("zero3.yaml", 4, "value", FOUR),
}
"""Launch configuration, processes, kind of run and what is changed of it."""


@pytest.fixture(scope="module")
def one(world: SimpleNamespace, tmp_path_factory: pytest.TempPathFactory) -> Callable:
    """The run of one process by its kind, with or without groups for four."""
    folder = tmp_path_factory.mktemp("one")

    @functools.cache
    def run(kind: str, four: bool) -> Path:
        changes = {**SHORT, **(FOUR if four else {})}
        return reinforce(world, folder / f"{kind}-{four}", kind, **changes)

    return run


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_a_run_is_the_same_in_every_way_of_launching_it(
    world: SimpleNamespace, one: Callable, tmp_path: Path, way: str
) -> None:
    name, processes, kind, changes = WAYS[way]
    place = Path(world.policy).parent
    several = ways.run(name, processes, place, tmp_path / "run", kind, **{**SHORT, **changes})
    alone = one(kind, changes is FOUR)
    equal_metrics(alone, several)
    for folder in ("checkpoints/2", "final"):
        close(alone / folder, several / folder)


def test_the_placement_is_read_from_what_the_launcher_has_set() -> None:
    assert read_placement({}, device="cpu").replicas == 1
    variables = {
        "WORLD_SIZE": "16",
        "LOCAL_WORLD_SIZE": "8",
        "ACCELERATE_USE_FSDP": "true",
        "FSDP_OFFLOAD_PARAMS": "true",
        "ACCELERATE_USE_PARALLELISM_CONFIG": "true",
        "PARALLELISM_CONFIG_DP_REPLICATE_SIZE": "2",
        "PARALLELISM_CONFIG_DP_SHARD_SIZE": "8",
    }
    place = read_placement(variables, device="cpu")
    assert (place.way, place.world_size, place.shards, place.replicas) == ("fsdp2", 16, 8, 2)
    assert place.per_host == 8 and place.offload_weights and place.offload_optimizer


def test_rollouts_have_whole_weights_where_they_take_half_of_the_smallest_device() -> None:
    assert choose_rollout_weights("auto", 40e9, 80e9) == "whole"
    assert choose_rollout_weights("auto", 41e9, 80e9) == "by_block"
    assert choose_rollout_weights("whole", 41e9, 80e9) == "whole"
    assert choose_rollout_weights("by_block", 1, 80e9) == "by_block"
