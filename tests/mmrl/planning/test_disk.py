"""The disk that a dry run announces."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mmrl.planning.disk import Disk, list_written
from mmrl.planning.plan_page import Plan
from mmrl.run_config import RunConfig

GIB = 2.0**30


@pytest.fixture
def room(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Sets the free space of every disk."""

    def leave(free: float) -> None:
        usage = shutil._ntuple_diskusage(int(2000 * GIB), 0, int(free))
        monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)

    return leave


def disk(folder: Path, **changes: Any) -> Disk:
    config = RunConfig(output_dir=str(folder / "runs" / "one"), max_steps=100, **changes)
    written = list_written(config, 16 * GIB, 3 * GIB)
    return Disk(config.output_dir, written, {"Gen-Verse/MMaDA-8B": 15 * GIB})


def said(folder: Path, **changes: Any) -> str:
    plan = Plan(RunConfig())
    disk(folder, **changes).describe(plan)
    return " ".join(f"{name} {text}" for name, text in plan.rows)


@pytest.mark.parametrize(
    ("limit", "steps", "count"), [(2, 10, 3), (2, 50, 2), (None, 10, 10), (1, 10, 2)]
)
def test_checkpoints_are_those_kept_and_the_one_that_is_written(
    room: Callable[[float], None], limit: int | None, steps: int, count: int, tmp_path: Path
) -> None:
    room(1000 * GIB)
    text = said(tmp_path, save_total_limit=limit, save_steps=steps)
    assert f"disk {19 * count + 16:.2f} GiB of 1000.00 GiB free in {tmp_path}" in text
    assert f"{count} checkpoints at a time of 16.00 GiB model and 3.00 GiB trainer state" in text
    assert "downloads 15.00 GiB Gen-Verse/MMaDA-8B" in text and "TOO SMALL" not in text


def test_without_checkpoints_there_is_the_final_model(tmp_path: Path) -> None:
    assert "disk 16.00 GiB of" in said(tmp_path, save_steps=0)


def test_what_a_run_has_written_already_counts_as_free(
    room: Callable[[float], None], tmp_path: Path
) -> None:
    room(31 * GIB - 1)
    assert "31.00 GiB are needed" in disk(tmp_path, save_steps=0).problem()
    folder = tmp_path / "runs" / "one" / "checkpoints" / "50"
    folder.mkdir(parents=True)
    (folder / "model.safetensors").write_bytes(b"11")
    assert disk(tmp_path, save_steps=0).problem() == ""
