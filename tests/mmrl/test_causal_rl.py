"""The loop on a policy that appends tokens: processes, resume, and what cannot be."""

from pathlib import Path

import pytest

from mmrl import rl
from mmrl.models.loading import new_model, read_config, save_model
from mmrl.models.policy import load_tokenizer
from mmrl.randomness import generator
from tests.mmrl.pair import Pair
from tests.mmrl.same_runs import close, equal_metrics, same_rollouts

SHIPPED = Path("datasets/text/checkpoints/qwen3")
TASK = "tasks.arithmetic"


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of the shipped sizes and random weights."""
    folder = tmp_path_factory.mktemp("qwen3")
    config = {**read_config(SHIPPED), "num_hidden_layers": 1}
    save_model(new_model(config, generator(0, "weights")), folder)
    load_tokenizer(SHIPPED).save_pretrained(folder)
    return folder


def words(start: Path, out: Path, *more: str) -> list[str]:
    """A short run in which completions with more vowels are better."""
    sizes = ["num_prompts=2", "num_generations=4", "max_completion_length=8", "eval_limit=4"]
    return (
        ["config=configs/rl/text_qwen3.yaml", f"model.path={start}", f"output_dir={out}"]
        + [*(f"{TASK}.{size}" for size in sizes)]
        + [f"{TASK}.rewards=[{{name: 'tests/mmrl/runs.py:vowels'}}]"]
        + ["per_device_train_batch_size=2", "max_steps=2", "eval_steps=2", "save_steps=1"]
        + ["bf16=false", "model.dtype=float64", "num_mini_batches=2", *more]
    )


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
