"""Supervised training of causal models that see, against transformers' own forward pass."""

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from mmrl.data.prompts import DataConfig, load_prompts
from mmrl.generation.causal.images import ImageTensors
from mmrl.models import load_policy
from mmrl.sft import SFTConfig, train
from tests.mmrl.objectives.completions import gradients, visits, write_rows
from tests.mmrl.objectives.image_completions import ROWS, seeing, settings
from tests.mmrl.runs import metrics
from tests.models.causal import SEEING, write_qwen_vl

CAUSAL = {"name": "causal"}


@pytest.mark.parametrize("name", SEEING)
def test_the_loss_is_the_cross_entropy_of_answers_under_transformers(
    name: str, tmp_path: Path
) -> None:
    model = write_qwen_vl(tmp_path / "model", name)
    data = write_rows(tmp_path / "rows.jsonl", ROWS)
    objective = seeing(data, model=str(tmp_path / "model"), corruption=CAUSAL)
    policy, expected = objective.policy, []
    for prompt in load_prompts(str(data), "image_to_text", DataConfig()):
        answer = objective.text.tokenizer(prompt.answer)["input_ids"]
        answer = torch.tensor([*answer, objective.text.ids["eos"]])
        canvas: Any = policy.canvas([prompt], len(answer))
        row = torch.cat((canvas.tokens[:, : -len(answer)], answer[None]), 1)
        features = canvas.features
        assert isinstance(features, ImageTensors)
        with torch.no_grad():
            logits = model(
                input_ids=row,
                mm_token_type_ids=(features.at >= 0).int(),
                pixel_values=torch.cat(features.pixels),
                image_grid_thw=torch.tensor(features.grids),
            ).logits[0, :, : objective.text.vocab[1]]
        expected.append(float(F.cross_entropy(logits[-len(answer) - 1 : -1], answer)))
    found, gradient = gradients(objective, visits(objective, 1))
    assert found == pytest.approx(sum(expected) / 4, abs=1e-5) and bool(gradient.any())


def test_a_run_learns_from_images_and_words_and_saves_what_can_be_loaded(tmp_path: Path) -> None:
    write_qwen_vl(tmp_path / "model", "qwen3_vl")
    words = [{"question": "how many", "answer": "red"}]
    data = write_rows(tmp_path / "rows.jsonl", [*ROWS, *words, *words])
    changes = {"model": str(tmp_path / "model"), "corruption": CAUSAL, "eval_data": str(data)}
    options: dict[str, Any] = {"max_steps": 6, "logging_steps": 1, "eval_steps": 3, "save_steps": 0}
    config = SFTConfig(
        output_dir=str(tmp_path / "run"),
        objective={"name": "text", **settings(data, **changes)},
        per_device_train_batch_size=3,
        learning_rate=1e-2,
        bf16=False,
        **options,
    )
    train(config)
    losses = [line["eval/loss"] for line in metrics(tmp_path / "run") if "eval/loss" in line]
    assert losses[-1] < losses[0]
    policy = load_policy(tmp_path / "run" / "final")
    [prompt] = load_prompts(str(data), "image_to_text", DataConfig())[3:4]
    assert len(policy.canvas([prompt])) == 1
