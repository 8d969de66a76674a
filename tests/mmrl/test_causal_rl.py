"""The loop on a policy that appends tokens: processes, resume, and what cannot be."""

from pathlib import Path

import pytest

from mmrl import rl
from tests.mmrl.engines import served
from tests.mmrl.engines.served import TASK
from tests.mmrl.pair import Pair
from tests.mmrl.same_runs import close, equal_metrics, same_rollouts


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return served.write_start(tmp_path_factory.mktemp("qwen3"))


def words(start: Path, out: Path, *more: str) -> list[str]:
    """Two steps of two mini-batches, without an engine."""
    steps = ["max_steps=2", "eval_steps=2", "num_mini_batches=2", "per_device_train_batch_size=2"]
    return served.words(start, out, *steps, *more)


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [[f"{TASK}.algorithm.beta=0.04"], ["model.lora={r: 4}", f"{TASK}.algorithm.name=gspo"]],
    ids=["grpo", "gspo-lora"],
)
def test_two_processes_and_a_resumed_run_are_one(
    start: Path, tmp_path: Path, pair: Pair, changes: list[str]
) -> None:
    pair.begin("mmrl.rl", words(start, tmp_path / "two", *changes))
    assert rl.main(words(start, tmp_path / "one", *changes)) == 0
    pair.end()
    equal_metrics(tmp_path / "one", tmp_path / "two")
    same_rollouts(tmp_path / "one", tmp_path / "two", 1)
    close(tmp_path / "one" / "final", tmp_path / "two" / "final")
    assert rl.main(words(start, tmp_path / "parts", *changes, "max_steps=1")) == 0
    resumed = words(start, tmp_path / "parts", *changes, "resume_from_checkpoint=auto")
    assert rl.main(resumed) == 0
    equal_metrics(tmp_path / "one", tmp_path / "parts", after=1)
    close(tmp_path / "one" / "final", tmp_path / "parts" / "final", tolerance=0)
