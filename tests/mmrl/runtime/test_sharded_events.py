"""What happens on one process of two is handled by both; runs in bfloat16 in every way."""

import functools
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from mmrl.run.checkpoint import checkpoint_steps
from tests.mmrl import sharded_events
from tests.mmrl.pair import Pair
from tests.mmrl.runs import World, metrics, same_weights
from tests.mmrl.runtime.test_sharded import PAIRS

every_pair = pytest.mark.parametrize("name", ["pair", *PAIRS.values()])
BFLOAT16 = {
    "pair": ["autocast"],
    "sharing_pair": ["autocast", "half", "half-lora"],
    "zero2_pair": ["half"],
    "zero3_pair": ["autocast", "half-lora"],
}
"""Kinds of runs in bfloat16 of each pair: all where weights are gathered in bfloat16."""
in_bfloat16 = pytest.mark.parametrize(
    ("name", "kind"), [(name, kind) for name, kinds in BFLOAT16.items() for kind in kinds]
)
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def one(world: World, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The runs of one process."""
    folder = tmp_path_factory.mktemp("one")
    sharded_events.run_all(world, folder, BFLOAT16["sharing_pair"])
    return folder


@pytest.fixture(scope="module")
def two(
    world: World, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Callable[[str], Path]:
    """The same runs of a pair, by its name."""

    @functools.cache
    def runs(name: str) -> Path:
        both: Pair = request.getfixturevalue(name)
        folder = tmp_path_factory.mktemp(name)
        words = [str(Path(world.policy).parent), str(folder), *BFLOAT16[name]]
        both.begin("tests.mmrl.sharded_events", words)
        both.end()
        return folder

    return runs


@every_pair
def test_sigusr1_on_one_process_writes_one_checkpoint_of_all(
    one: Path, two: Callable[[str], Path], name: str
) -> None:
    for run in (one / "events", two(name) / "events"):
        assert checkpoint_steps(run / "checkpoints") == [1]


@every_pair
def test_a_loss_that_is_not_finite_on_one_process_ends_all_and_is_named(
    two: Callable[[str], Path], name: str
) -> None:
    run = two(name) / "events"
    assert [line["step"] for line in metrics(run)] == [1] and not (run / "final").exists()
    assert "the loss is not finite for" in (run / "train.log").read_text()


@in_bfloat16
def test_a_run_in_bfloat16_trains_as_in_one_process_up_to_rounding(
    one: Path, two: Callable[[str], Path], name: str, kind: str
) -> None:
    left, right = (metrics(folder / kind)[0] for folder in (one, two(name)))
    assert left["grad_norm"] == pytest.approx(right["grad_norm"], rel=0.02)
    assert left["loss"] == pytest.approx(right["loss"], rel=0.05)
    assert left["reward"] == right["reward"]
    files = [*(two(name) / kind / "final").glob("*model*.safetensors")]
    stored = [tensor.dtype for file in files for tensor in load_file(file).values()]
    assert stored and (kind != "half" or {*stored} == {torch.bfloat16})


@in_bfloat16
def test_a_bfloat16_run_resumes_exactly(two: Callable[[str], Path], name: str, kind: str) -> None:
    whole, resumed = two(name) / kind, two(name) / f"{kind}-resumed"
    assert metrics(resumed)[-1] == metrics(whole)[-1]
    assert same_weights(resumed / "final", whole / "final")
