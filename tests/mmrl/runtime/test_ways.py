"""Every way of launching a run is the same run: launch configurations for GPUs, on the CPU."""

import functools
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.mmrl import ways
from tests.mmrl.runs import ROOT, World
from tests.mmrl.same_runs import close, equal_metrics, same_rollouts
from tests.mmrl.sharded_runs import reinforce

SHORT = {"max_steps": 2, "eval_steps": 1, "save_steps": 1}
FOUR = {
    "task": {"num_prompts": 4, "num_generations": 2},
    "per_device_train_batch_size": 2,
    "num_mini_batches": 1,
}
"""Groups for four processes."""
PARTS = {"logits_budget": 3 * 256 * 8}
"""Three rows of float64 logits at once."""

WAYS = {
    "offload": ("fsdp2_offload.yaml", 2, "full", {}),
    "two-nodes": ("two_nodes/multi_gpu.yaml", 2, "full", {}),
    "two-nodes-sharded": (
        *("two_nodes/fsdp2.yaml", 2, "lora"),
        {"rollout_weights": "by_block", **PARTS},
    ),
    "hsdp": ("two_nodes/hsdp.yaml", 4, "value", FOUR),
    "four-sharded": ("fsdp2.yaml", 4, "value", FOUR),
    "zero2-nodes": ("two_nodes/zero2.yaml", 2, "lora", {}),
    "zero3-nodes": ("two_nodes/zero3.yaml", 2, "full", {"rollout_weights": "by_block", **PARTS}),
    "zero3-offload": ("zero3_offload.yaml", 2, "full", FOUR),
    "four-zero3": ("zero3.yaml", 4, "full", FOUR),
}
"""Launch configuration, processes, kind of run and what is changed of it."""
CONTINUED = {"four-sharded": "hsdp", "four-zero3": "zero3-offload"}
"""Ways that also continue a run from the first checkpoint of another, with as many processes or
with twice or half as many."""


@pytest.fixture(scope="module")
def one(world: World, tmp_path_factory: pytest.TempPathFactory) -> Callable:
    """The run of one process by its kind, with or without groups for four."""
    folder = tmp_path_factory.mktemp("one")

    @functools.cache
    def run(kind: str, four: bool) -> Path:
        changes = {**SHORT, **(FOUR if four else {})}
        return reinforce(world, folder / f"{kind}-{four}", kind, **changes)

    return run


@pytest.fixture(scope="module")
def several(world: World, tmp_path_factory: pytest.TempPathFactory) -> Callable:
    """The run in one of `WAYS`, done once; in those of `CONTINUED` with another beside it."""
    folder, place = tmp_path_factory.mktemp("several"), Path(world.policy).parent

    @functools.cache
    def run(way: str) -> Path:
        name, processes, kind, changes = WAYS[way]
        settings = {**SHORT, **changes}
        if way in CONTINUED:
            settings["begun"] = str(run(CONTINUED[way]) / "checkpoints" / "1")
        return ways.run(name, processes, place, folder / way / "run", kind, **settings)

    return run


def same_run(one: Path, several: Path, after: int = -1) -> None:
    """Assert that a run of several processes is that of one, after a step."""
    equal_metrics(one, several, after)
    for step in range(max(after, 0) + 1, 3):
        same_rollouts(one, several, step)
        close(one / "checkpoints" / str(step), several / "checkpoints" / str(step))
    close(one / "final", several / "final")


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_a_run_is_the_same_in_every_way_of_launching_it(
    one: Callable, several: Callable, way: str
) -> None:
    _, _, kind, changes = WAYS[way]
    same_run(one(kind, changes is FOUR), several(way))


@pytest.mark.slow
@pytest.mark.parametrize("way", CONTINUED)
def test_a_run_goes_on_in_another_way_and_with_another_number_of_processes(
    one: Callable, several: Callable, way: str
) -> None:
    _, _, kind, changes = WAYS[way]
    continued = several(way).with_name("run-continued")
    same_run(one(kind, changes is FOUR), continued, after=1)


@pytest.mark.slow
def test_the_documented_torchrun_line_starts_the_same_run_on_two_nodes(
    world: World, one: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ACCELERATE_USE_CPU", "true")
    page = (ROOT / "docs" / "how_to" / "many_gpus.md").read_text().splitlines()
    [line] = [line for line in page if line.startswith("torchrun ")]
    place = Path(world.policy).parent
    same_run(one("full", False), ways.torchrun(line, place, tmp_path / "run", "full", **SHORT))
    assert (tmp_path / "run" / "train.rank1.log").exists()
