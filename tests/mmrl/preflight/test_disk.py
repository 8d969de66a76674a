"""The disk that a dry run announces."""

import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from mmrl.config import load_config
from mmrl.preflight.disk import describe_disk
from mmrl.preflight.plan import describe
from mmrl.rl_config import RLConfig
from mmrl.run_config import RunConfig

GIB = 2.0**30


def said(folder: Path, free: float = 1000 * GIB, **changes: Any) -> str:
    config = RunConfig(output_dir=str(folder / "runs" / "one"), max_steps=100, **changes)
    with pytest.MonkeyPatch.context() as patch:
        usage = shutil._ntuple_diskusage(int(2000 * GIB), 0, int(free))
        patch.setattr(shutil, "disk_usage", lambda _: usage)
        lines = describe_disk(config, 16 * GIB, 3 * GIB, downloads={"owner/model": 15 * GIB})
        return " ".join(" ".join(lines).split())


@pytest.mark.parametrize(
    ("limit", "steps", "count"), [(2, 10, 3), (2, 50, 2), (None, 10, 10), (1, 10, 2)]
)
def test_checkpoints_are_those_kept_and_the_one_that_is_written(
    limit: int | None, steps: int, count: int, tmp_path: Path
) -> None:
    text = said(tmp_path, save_total_limit=limit, save_steps=steps)
    assert f"checkpoints {19 * count:.2f} GiB {count} at a time of 16.00 GiB model" in text
    assert f"total {19 * count + 16 + 15:.2f} GiB of 1000.00 GiB free in {tmp_path}" in text
    assert "download 15.00 GiB owner/model" in text and "too small" not in text


def test_without_checkpoints_there_is_the_final_model(tmp_path: Path) -> None:
    assert "total 31.00 GiB" in said(tmp_path, save_steps=0)


def test_a_disk_that_is_too_small_is_named_with_what_to_do(tmp_path: Path) -> None:
    text = said(tmp_path, free=20 * GIB)
    assert "too small lower save_total_limit, or choose another output_dir" in text


def test_a_checkpoint_of_the_hub_is_downloaded_as_it_is_stored_however_it_is_held(
    tmp_path: Path,
) -> None:
    words = ["config=configs/rl/llada_gsm8k.yaml", f"output_dir={tmp_path}"]
    for changes in ([], ["model.quantization_config=null", "model.dtype=float32"]):
        said = describe(load_config(RLConfig, [*words, *changes]))
        assert re.search(r"download +14\.93 GiB  GSAI-ML/LLaDA-8B-Instruct", said)
