"""A model that sees, sharded over two processes: nobody waits, both learn as one process does."""

from types import SimpleNamespace

import pytest

from mmrl.data.stream import stream_rows
from tests.mmrl import sharded_sight
from tests.mmrl.pair import Pair
from tests.mmrl.runs import metrics
from tests.mmrl.runtime.test_sharded import close, equal_metrics

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def runs(sharing_pair: Pair, tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """All runs of `sharded_sight`: `one` process and `two` that share the model."""
    world = tmp_path_factory.mktemp("world")
    one, two = tmp_path_factory.mktemp("one"), tmp_path_factory.mktemp("two")
    sharded_sight.write(world)
    sharing_pair.begin("tests.mmrl.sharded_sight", [str(world), str(two)])
    sharded_sight.run_all(world, one, batch_size=2)
    sharing_pair.end()
    return SimpleNamespace(one=one, two=two)


@pytest.mark.parametrize("kind", sharded_sight.SETTINGS)
def test_questions_and_words_are_learned_together_as_in_one_process(
    runs: SimpleNamespace, kind: str
) -> None:
    equal_metrics(runs.one / kind, runs.two / kind)
    close(runs.one / kind / "final", runs.two / kind / "final", 1e-5)
    updates = [line for line in metrics(runs.two / kind) if "loss" in line]
    assert len(updates) == 2 and updates[-1]["sight/kl"] > 0


def test_a_process_that_reads_words_alone_trains_beside_one_that_sees(
    runs: SimpleNamespace,
) -> None:
    rows = list(stream_rows(0, range(8), 8))
    shown = [row % 2 == 0 for row in rows]  # rows with a picture and without take turns
    assert any(mine != yours for mine, yours in zip(shown[::2], shown[1::2], strict=True))
    learned = ("loss", "grad_norm", "eval/loss")
    for left, right in zip(metrics(runs.one / "sft"), metrics(runs.two / "sft"), strict=True):
        expected = {key: left[key] for key in learned if key in left}
        assert {key: right[key] for key in expected} == pytest.approx(expected, rel=1e-3)
    close(runs.one / "sft" / "final", runs.two / "sft" / "final", 1e-5)
