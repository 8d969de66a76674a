"""A prefill of the assistant: given at the end of the prompt, seen by rewards, never trained on."""

import json
from pathlib import Path
from typing import Any

import pytest

from mmrl.config import ConfigError
from mmrl.evaluation.benchmark import run_benchmark
from mmrl.models import load_policy
from mmrl.rollouts.tasks import Task
from mmrl.types import Cutting, Prompt, Sample
from tests.mmrl.runs import VQ, World, roll_out
from tests.mmrl.test_eval import config as eval_config
from tests.mmrl.test_text_rl import text_config

START = "<reasoning>"


class Recorder:
    """Scores nothing, cuts completions, and keeps what it sees."""

    cutting = Cutting(2)

    def __init__(self) -> None:
        self.seen: list[Sample] = []

    def __call__(self, samples: list[Sample]) -> list[list[float]]:
        self.seen += samples
        return [[1.0] * len(sample.chunks or ()) for sample in samples]


def sampled(world: World, folder: Path, **task: Any) -> tuple[Any, Any, Recorder]:
    seen = Recorder()
    rewards = [{"name": "seen", "reward": seen}]
    config = text_config(world, folder, rewards=rewards, **task)
    policy = load_policy(world.policy, VQ, max_prompt_length=120)
    job = Task("words", config.tasks["shapes"])
    return policy, roll_out(job, policy, 0, 0, 0, 1), seen


def test_rewards_see_the_prefill_and_the_policy_is_given_it(world: World, tmp_path: Path) -> None:
    policy, batch, seen = sampled(world, tmp_path, assistant_prefill=START)
    canvas, rollout = batch.rollout.canvas, batch.rollout
    given = policy.tokenizer(START, add_special_tokens=False)["input_ids"]
    assert canvas.response.sum(1).tolist() == [8] * 8, "no response position is spent on it"
    written = rollout.trace >= 0
    for row, completion in enumerate(batch.completions):
        prompt = canvas.tokens[row, ~canvas.response[row]]
        assert prompt[-len(given) :].tolist() == given
        assert not bool(written[row, ~canvas.response[row]].any())
        ids = canvas.tokens[row, canvas.response[row]]
        assert completion.startswith(START) and completion.count(START) == 1
        texts = policy.layouts["text"].decode(canvas[row : row + 1])
        assert completion == START + texts[0] and len(ids) == 8
    assert [sample.completion for sample in seen.seen] == batch.completions
    for sample in seen.seen:
        before = START
        for chunk in sample.chunks or ():
            assert chunk.before == before
            before += chunk.text
        assert before == sample.completion or not sample.chunks
    plain = policy.layouts["text"].prompt_ids(Prompt("0", "text", batch.prompts[0].text))
    assert policy.layouts["text"].prompt_ids(batch.prompts[0]) == [*plain, *given]


def test_benchmarks_score_it_and_are_other_benchmarks_with_it(world: World, tmp_path: Path) -> None:
    rows = [{"prompt": f"a {n} ring", "id": f"p{n}", "answer": "1"} for n in ("red", "blue")]
    (tmp_path / "text.jsonl").write_text("\n".join(map(json.dumps, rows)))

    def begins(samples: list[Sample]) -> list[float]:
        return [float(str(sample.completion).startswith(START)) for sample in samples]

    def evaluation(out: str, **changes: Any) -> Any:
        source, common = str(tmp_path / "text.jsonl"), {"rewards": [begins], "settings": []}
        return eval_config(world, source, tmp_path / out, **common, **changes)

    run_benchmark(evaluation("out"))
    with pytest.raises(ConfigError, match="assistant_prefill: '' there, '<reasoning>' now"):
        run_benchmark(evaluation("out", assistant_prefill=START))
    run_benchmark(evaluation("begun", assistant_prefill=START))
    tables = [json.loads((tmp_path / n / "scores.json").read_text()) for n in ("out", "begun")]
    assert [next(iter(each["table"].values()))["accuracy"] for each in tables] == [0.0, 1.0]
