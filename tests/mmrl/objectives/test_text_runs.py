"""Runs on completions: from settings to a model that loads, and on from there."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from mmrl.config import ConfigError
from mmrl.objectives.text import CompletionConfig, Completions
from mmrl.sft import SFTConfig, train
from tests.mmrl.objectives.completions import completions, options


def run(data: Path, output: Path, **changes: Any) -> Path:
    """A run of four steps; returns the directory of its model."""
    objective = {"name": "text", **options(data, **changes)}
    values: dict[str, Any] = {"max_steps": 4, "logging_steps": 2, "per_device_train_batch_size": 6}
    values |= {"optimizer": "muon", "learning_rate": 1e-2, "bf16": True}
    values |= objective.pop("training", {})
    train(SFTConfig(output_dir=str(output), objective=objective, **values))
    return output / "final"


def held_out_loss(data: Path, **start: Any) -> float:
    with torch.no_grad():
        return completions(data, eval_data=str(data), **start).evaluate(Path(), 0)["eval/loss"]


@pytest.mark.slow
def test_an_adapter_is_trained_and_saved_as_peft_does_or_merged(data: Path, tmp_path: Path) -> None:
    base = run(data, tmp_path / "base")
    lora = {"r": 4, "lora_alpha": 8, "lora_dropout": 0.2, "target_modules": ["q", "k", "v"]}
    start = {"model": str(base), "lora": lora, "modules_to_train": ["norm"]}
    whole = run(data, tmp_path / "whole", **start, training={"optimizer": "adamw"})
    losses = [held_out_loss(data, model=str(model)) for model in (base, whole)]
    assert losses[0] > losses[1]
    config = json.loads((whole / "adapter_config.json").read_text())
    assert config["base_model_name_or_path"] == str(base) and config["lora_dropout"] == 0.2
    changes = {"optimizer": "adamw", "merge_adapter": True}
    merged = run(data, tmp_path / "merged", **start, training=changes)
    assert (merged / "config.json").exists() and not (merged / "adapter_config.json").exists()
    loss = held_out_loss(data, model=str(merged))
    assert loss == pytest.approx(losses[1], rel=1e-5)


def test_a_dry_run_knows_the_network_that_is_trained(data: Path) -> None:
    trained = completions(data)
    outline, words = Completions.outline(trained.config)
    assert outline is not None
    sizes = [{n: p.shape for n, p in one.named_parameters()} for one in (outline, trained.module)]
    assert sizes[0] == sizes[1] and words == f"6 completions of {data}"
    away = CompletionConfig(**options(data, model="GSAI-ML/LLaDA-8B-Base"))
    assert Completions.outline(away) == (None, f"completions of {data}, of which one row is read")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"corruption": {"name": "randon"}}, "Did you mean 'random'"),
        ({"corruption": {"name": "semi_ar", "block_size": 0}}, "objective.corruption.block_size"),
        (
            {"corruption": {"name": "block"}, "fill": "row", "trained_padding": 0},
            "objective.trained_padding",
        ),
    ],
)
def test_settings_that_cannot_train_are_named(
    data: Path, change: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        CompletionConfig(**options(data, **change))
