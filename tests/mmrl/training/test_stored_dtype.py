"""Weights of a supervised run: where they are loaded, and which of them are float32."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from mmrl.sft import SFTConfig, train
from mmrl.training.supervised_trainer import SupervisedTrainer
from tests.mmrl.objectives.completions import completions, options, write_rows

TRAINED = ["blocks.1.attn", "norm"]


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Settings of an objective that trains a part of a checkpoint stored in bfloat16."""
    folder = tmp_path_factory.mktemp("start")
    data = write_rows(folder / "rows.jsonl")
    completions(data, save_dtype="bfloat16").save(folder / "model")
    changes = {"model": str(folder / "model"), "tokenizer": "", "dtype": "bfloat16"}
    return {**options(data, **changes), "modules_to_train": TRAINED}


def run(start: dict[str, Any], output: Path, **changes: Any) -> Path:
    sizes = {key: value for key, value in start.items() if key != "network"}
    values = {"max_steps": 2, "save_steps": 1, "logging_steps": 1, "bf16": True}
    values |= {"per_device_train_batch_size": 3, "learning_rate": 1e-2, "save_total_limit": None}
    objective = {"name": "text", **sizes}
    train(SFTConfig(output_dir=str(output), objective=objective, **{**values, **changes}))
    return output


def dtypes(monkeypatch: pytest.MonkeyPatch, start: dict[str, Any], output: Path, **changes: Any):
    """Dtypes of trained and frozen weights and of moments at the end of a run."""
    found: dict[str, set[torch.dtype]] = {"trained": set(), "frozen": set(), "moments": set()}
    step = SupervisedTrainer.train_step

    def look(self: SupervisedTrainer) -> float:
        loss = step(self)
        for parameter in self.network.parameters():
            found["trained" if parameter.requires_grad else "frozen"].add(parameter.dtype)
        for state in self.optimizers[0].state.values():
            found["moments"] |= {state["exp_avg"].dtype, state["exp_avg_sq"].dtype}
        return loss

    monkeypatch.setattr(SupervisedTrainer, "train_step", look)
    run(start, output, **changes)
    return found


def test_what_is_trained_is_float32_and_the_rest_bfloat16(
    start: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wide = {torch.float32}
    found = dtypes(monkeypatch, start, tmp_path)
    assert found == {"trained": wide, "frozen": {torch.bfloat16}, "moments": wide}


def test_a_checkpoint_holds_what_is_trained_and_resumes_exactly(
    start: dict[str, Any], tmp_path: Path
) -> None:
    whole = run(start, tmp_path / "whole")
    state = torch.load(whole / "checkpoints" / "1" / "trainer_state.pt", weights_only=True)
    assert {name.split(".")[0] for name in state["network"]} == {"blocks", "norm"}
    first = str(whole / "checkpoints" / "1")
    again = run(start, tmp_path / "again", resume_from_checkpoint=first)
    left, right = (load_file(each / "final" / "model.safetensors") for each in (whole, again))
    assert left.keys() == right.keys()
    assert all(torch.equal(left[name], right[name]) for name in left)
