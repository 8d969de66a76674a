"""Supervised runs that take a second: a tiny image tokenizer on flat images."""

from pathlib import Path
from typing import Any

import pytest

from mmrl.sft import SFTConfig
from scripts.miniature.reconstruction import Reconstruction

NETWORK = {"ch": 4, "bits": 3, "norm_groups": 2, "encoder_ch_mult": [1, 1]}
NETWORK |= {"encoder_num_res_blocks": [0, 0], "decoder_ch_mult": [1, 1]}
NETWORK |= {"decoder_num_res_blocks": [0, 1]}


def tokenizer(images: Path, **changes: Any) -> dict[str, Any]:
    """The objective: a tiny image tokenizer."""
    usual = {"image_size": 8, "network": NETWORK}
    return {"name": "scripts.miniature:VQ", "data": str(images), **usual, **changes}


def config(images: Path, output: Path, **changes: Any) -> SFTConfig:
    """Four steps of a tiny image tokenizer, a checkpoint every two."""
    values = {"objective": tokenizer(images), "max_steps": 4, "per_device_train_batch_size": 5}
    values |= {"learning_rate": 1e-2, "logging_steps": 1, "save_steps": 2, "warmup_steps": 1}
    values |= {"ema_decay": 0.9, "bf16": False}
    return SFTConfig(output_dir=str(output), **{**values, **changes})


def kill_in_checkpoint(monkeypatch: pytest.MonkeyPatch, step: int, error: BaseException) -> None:
    """Let the writing of the checkpoint of one step fail half-way."""
    original = Reconstruction.save

    def save(self: Reconstruction, directory: Path) -> None:
        original(self, directory)
        if directory.name.startswith(str(step)):
            raise error

    monkeypatch.setattr(Reconstruction, "save", save)
