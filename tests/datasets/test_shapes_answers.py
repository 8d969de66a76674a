"""The shipped networks that answer questions about images, on questions that no pair asked."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors import safe_open

from mmrl.data.prompts import DataConfig, load_prompts
from mmrl.models import load_policy
from mmrl.randomness import generator
from mmrl.rewards.answer import AnswerReward
from mmrl.samplers import SamplerConfig, sample
from mmrl.types import Sample

FOLDER = Path(__file__).resolve().parents[2] / "datasets" / "shapes"
CHECKPOINTS = FOLDER / "checkpoints"
NAMES = (
    "llada_v",
    "llada_v_careless",
    "mmada_questions",
    "mmada_questions_careless",
    "mmada_sums",
    "mmada_three_careless",
)
GREEDY = SamplerConfig(name="static", steps=12, block_size=8, temperature=0, eos="stop")


@pytest.mark.parametrize("name", NAMES)
def test_a_network_that_answers_is_stored_in_bfloat16_and_at_most_8_mb(name: str) -> None:
    files = [path for path in (CHECKPOINTS / name).rglob("*") if path.is_file()]
    assert 0 < sum(path.stat().st_size for path in files) <= 8e6
    with safe_open(CHECKPOINTS / name / "model.safetensors", framework="pt") as file:
        assert {file.get_tensor(key).dtype for key in file.keys()} == {torch.bfloat16}  # noqa: SIM118


@pytest.mark.slow
@pytest.mark.parametrize(("name", "least"), [("llada_v", 0.6), ("mmada_questions", 0.4)])
def test_colors_are_named_by_who_looks(name: str, least: float) -> None:
    policy = load_policy(CHECKPOINTS / name, CHECKPOINTS / "magvit", max_prompt_length=128)
    questions = str(FOLDER / "questions_validation.jsonl")
    rows = load_prompts(questions, "image_to_text", DataConfig(format="dllm_rl"))
    rows = [row for row in rows if row.metadata["tag"] == "color"]

    def share_right(pictures_of: list[int]) -> float:
        asked = [
            replace(row, images=rows[n].images) for row, n in zip(rows, pictures_of, strict=True)
        ]
        draws = [generator(0, n) for n in range(len(asked))]
        rollout = sample(policy, policy.canvas(asked, 24), GREEDY, draws)
        said = policy.decode(rollout.canvas, asked)
        scores = AnswerReward()([Sample.of(*pair) for pair in zip(asked, said, strict=True)])
        return sum(score or 0.0 for score in scores) / len(scores)

    right = share_right(list(range(len(rows))))
    others = share_right([(n + 1) % len(rows) for n in range(len(rows))])
    assert len(rows) == 32 and right >= least and others <= right - 0.2
