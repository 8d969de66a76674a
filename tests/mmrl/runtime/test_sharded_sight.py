"""A model that sees, sharded over two processes: nobody waits, both learn as one process does."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.mmrl import sharded_sight
from tests.mmrl.pair import Pair
from tests.mmrl.runs import metrics
from tests.mmrl.runtime.test_sharded import PAIRS
from tests.mmrl.same_runs import close, equal_metrics

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """A world, and all runs of `sharded_sight` of one process."""
    world, one = tmp_path_factory.mktemp("world"), tmp_path_factory.mktemp("one")
    sharded_sight.write(world)
    sharded_sight.run_all(world, one, ["mixed", "sight"], batch_size=2)
    return SimpleNamespace(world=world, one=one)


@pytest.fixture(scope="module", params=PAIRS)
def runs(
    alone: SimpleNamespace, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> SimpleNamespace:
    """The runs of `one` process, and those of `two` that share the model in some way."""
    both: Pair = request.getfixturevalue(PAIRS[request.param])
    two: Path = tmp_path_factory.mktemp("two")
    rows = "mixed" if request.param == "fsdp2" else "sight"  # DeepSpeed refuses mixed rows
    both.begin("tests.mmrl.sharded_sight", [str(alone.world), str(two), rows])
    both.end()
    return SimpleNamespace(one=alone.one, two=two, rows=rows)


@pytest.mark.parametrize("kind", sharded_sight.SETTINGS)
def test_questions_and_words_are_learned_together_as_in_one_process(
    runs: SimpleNamespace, kind: str
) -> None:
    equal_metrics(runs.one / kind, runs.two / kind)
    close(runs.one / kind / "final", runs.two / kind / "final", 1e-5)
    updates = [line for line in metrics(runs.two / kind) if "loss" in line]
    assert len(updates) == 2 and updates[-1]["sight/kl"] > 0


def test_supervised_rows_with_images_and_without_are_learned_as_in_one_process(
    runs: SimpleNamespace,
) -> None:
    learned = ("loss", "grad_norm", "eval/loss")
    for left, right in zip(
        metrics(runs.one / runs.rows), metrics(runs.two / runs.rows), strict=True
    ):
        expected = {key: left[key] for key in learned if key in left}
        assert {key: right[key] for key in expected} == pytest.approx(expected, rel=1e-3)
    close(runs.one / runs.rows / "final", runs.two / runs.rows / "final", 1e-5)
