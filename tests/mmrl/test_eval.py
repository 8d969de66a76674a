"""The text benchmark on an untrained policy of two blocks: numbers, resumption, refusals."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from mmrl.eval import main
from mmrl.evaluation import benchmark
from mmrl.evaluation.benchmark import run_benchmark
from mmrl.evaluation.eval_config import EvalConfig
from mmrl.generation.masked.canvas import MaskedCanvas
from mmrl.models import load_policy
from mmrl.pretrained.model_config import ModelConfig
from mmrl.rollouts.held_out import effective_lengths, evaluate
from mmrl.samplers import SamplerConfig
from mmrl.types import Prompt, Rollout, Sample
from tests.mmrl.pair import Pair
from tests.mmrl.runs import World

TIMED = ("tokens_per_s", "raw_tokens_per_s")
TEXTS = ["a red circle", "two green squares", "a ring " * 40, "a purple ring", "a blue cross"]
STATIC = {"name": "static", "steps": 4, "block_size": 4, "temperature": 1.0}


@pytest.fixture
def prompts(tmp_path: Path) -> str:
    """Five prompts, the third of which is too long."""
    rows = [{"prompt": text, "id": f"p{n}", "answer": "1"} for n, text in enumerate(TEXTS)]
    path = tmp_path / "text.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def even(samples: list[Sample]) -> list[float]:
    """Whether a completion has an even number of characters."""
    return [float(len(str(sample.completion)) % 2 == 0) for sample in samples]


def config(world: World, prompts: str, out: Path, **changes: Any) -> EvalConfig:
    values = {"model": ModelConfig(path=world.policy, vq=None, max_prompt_length=40)}
    values |= {"prompts": prompts, "num_samples": 2, "batch_size": 3, "max_completion_length": 8}
    values |= {"sampler": SamplerConfig(**STATIC)}
    values |= {"settings": [{}, {"label": "short", "max_completion_length": 4, "steps": 2}]}
    values |= {"rewards": [even]}
    return EvalConfig(output_dir=str(out), **{**values, **changes})


def words(world: World, prompts: str, out: Path) -> list[str]:
    """The same as a command line, with a reward of its own."""
    return (
        [f"output_dir={out}", f"model.path={world.policy}", "model.vq=null"]
        + ["model.max_prompt_length=40", f"prompts={prompts}", "num_samples=2", "batch_size=3"]
        + ["max_completion_length=8", "sampler={name: static, steps: 4, block_size: 4}"]
        + ["settings=[{label: long}, {max_completion_length: 4, steps: 2}]"]
        + ["rewards=[{name: math}]"]
    )


def numbers(out: Path) -> dict[str, Any]:
    """Everything in scores.json that is not a time or a place."""
    scores = json.loads((out / "scores.json").read_text(encoding="utf-8"))
    rows = scores["table"].values()
    table = [{k: v for k, v in row.items() if k not in TIMED} for row in rows]
    return {"table": table, "samples": scores["samples"], "left_out": scores["left_out"]}


def test_a_row_holds_what_completions_add_up_to(world: World, prompts: str, tmp_path: Path) -> None:
    report = run_benchmark(config(world, prompts, tmp_path / "out"))
    assert report is not None and list(report.content["table"]) == ["static", "short"]
    found = numbers(tmp_path / "out")
    assert found["left_out"] == 1 and {s["id"] for s in found["samples"]["short"]} == {
        "p0",
        "p1",
        "p3",
        "p4",
    }
    for label, length, steps in (("static", 8, 4), ("short", 4, 2)):
        row, samples = report.content["table"][label], found["samples"][label]
        scores = [sample["scores"]["even"] for sample in samples]
        assert row["n"] == len(samples) == 8
        assert row["accuracy"] == row["avg@2"] == row["pass@1"] == pytest.approx(sum(scores) / 8)
        pairs = [max(scores[n : n + 2]) for n in range(0, 8, 2)]
        assert row["pass@2"] == pytest.approx(sum(pairs) / 4)
        assert row["length"] == sum(s["length"] for s in samples) / 8 <= length
        assert row["nfe"] == steps and 0 < row["tokens_per_s"] <= row["raw_tokens_per_s"]
        assert scores == even([Sample("", sample["completion"]) for sample in samples])
    assert "1 prompts too long" in (tmp_path / "out" / "table.txt").read_text(encoding="utf-8")


def test_a_row_is_what_its_sampler_gives_alone_and_in_other_batches(
    world: World, prompts: str, tmp_path: Path
) -> None:
    run_benchmark(config(world, prompts, tmp_path / "out"))
    policy = load_policy(world.policy, vq=None, max_prompt_length=40)
    kept = [Prompt(f"p{n}", "text", text) for n, text in enumerate(TEXTS) if n != 2]
    short = SamplerConfig(**{**STATIC, "steps": 2})
    with torch.no_grad():
        alone = evaluate(policy, kept, short, None, batch_size=8, num_samples=2, length=4)
    samples = numbers(tmp_path / "out")["samples"]["short"]
    assert [sample["completion"] for sample in samples] == alone.completions


def test_an_interrupted_evaluation_continues_with_the_same_numbers(
    world: World, prompts: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert main(words(world, prompts, whole)) == 0
    sampled, stop_at = [], 4
    sample_batch = benchmark.sample_batch

    def interrupted(*arguments: Any) -> Any:
        if len(sampled) == stop_at:
            raise KeyboardInterrupt
        sampled.append(arguments[1])
        return sample_batch(*arguments)

    monkeypatch.setattr(benchmark, "sample_batch", interrupted)
    assert main(words(world, prompts, parts)) == 130 and not (parts / "scores.json").exists()
    stop_at = -1
    assert main(words(world, prompts, parts)) == 0
    assert len(sampled) == 6 and numbers(parts) == numbers(whole)
    assert main([*words(world, prompts, parts), "rewards=[{name: format}]"]) == 0
    assert len(sampled) == 6 and "format" in numbers(parts)["samples"]["long"][0]["scores"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("seed=1", "seed: 0 there, 1 now"),
        ("settings=[{label: long}]", "settings[1].steps: 2 there, None now"),
        ("", "texts of prompts: "),
    ],
)
def test_another_evaluation_in_the_same_folder_is_refused_with_what_differs(
    world: World,
    prompts: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    change: str,
    message: str,
) -> None:
    arguments = [*words(world, prompts, tmp_path / "out"), "limit=1"]
    assert main(arguments) == 0
    if not change:
        Path(prompts).write_text(json.dumps({"prompt": "a red ring", "id": "p0"}))
    assert main([*arguments, *filter(None, [change])]) == 1
    said = capsys.readouterr().err
    assert message in said and "Choose another output_dir" in said


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("settings=[{stepz: 3}]", "settings[0]: stepz is not a setting. Did you mean 'steps'"),
        ("settings=[{}, {steps: 3}]", "settings[1]: sampler.steps is 3; it must be a multiple of"),
        ("prompts=nowhere.jsonl", "nowhere.jsonl"),
    ],
)
def test_what_cannot_run_is_refused_before_a_model_loads(
    world: World,
    prompts: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    change: str,
    message: str,
) -> None:
    assert main([*words(world, prompts, tmp_path), "model.path=GSAI-ML/LLaDA-8B-Base", change]) == 1
    assert message in capsys.readouterr().err


def test_a_length_ends_before_the_first_end_token() -> None:
    tokens = torch.tensor([[7, 8, 9, 5, 9, 5], [7, 5, 8, 8, 8, 8], [7, 8, 6, 5, 9, 9]])
    response = torch.tensor([[False, False, True, True, True, True]]).expand(3, -1)
    valid = response & torch.tensor([[1, 1, 1, 1, 0, 0], [1] * 6, [1, 1, 1, 0, 0, 0]]).bool()
    canvas = MaskedCanvas(tokens, response, None, (0, 40), 39, stop_ids=(5, 6), valid=valid)
    rollout = Rollout(canvas, tokens, torch.zeros(3, 6), {})
    assert effective_lengths(rollout) == [1, 4, 0]
    rollout.canvas.valid = None
    assert effective_lengths(rollout) == [4, 4, 4]


@pytest.mark.slow
@pytest.mark.parametrize("way", ["sharing_pair", "zero3_pair"])
def test_two_processes_that_share_a_model_give_the_numbers_of_one(
    world: World, prompts: str, way: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    both: Pair = request.getfixturevalue(way)
    own = "rewards=[{name: tests/mmrl/test_eval.py:even, key: parity}, {name: math}]"
    uneven = ["num_samples=1", "batch_size=3", "settings=[{}]", own]
    both.begin("mmrl.eval", [*words(world, prompts, two), *uneven])
    assert main([*words(world, prompts, one), *uneven]) == 0
    printed = "".join(both.end())
    assert numbers(two) == numbers(one) and printed.count("written to") == 1
    assert {tuple(s["scores"]) for s in numbers(one)["samples"]["static"]} == {("parity", "math")}
