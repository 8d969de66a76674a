"""The commands of the Makefile, as a new user runs them."""

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SMALL = "max_steps=1 save_steps=1 tasks.shapes.num_prompts=4 tasks.shapes.sampler.steps=3"


@pytest.mark.slow
@pytest.mark.skipif(not (ROOT / ".venv/.installed").exists(), reason="make has not installed here")
def test_make_quickstart_runs_twice_in_a_folder_with_a_space(tmp_path: Path) -> None:
    checkout = tmp_path / "a checkout"
    shutil.copytree(ROOT, checkout, ignore=shutil.ignore_patterns(".*", "runs", "tests"))
    (checkout / ".venv").symlink_to(ROOT / ".venv")
    (checkout / ".venv" / ".installed").touch()  # newer than the copies
    for _ in range(2):
        command = ["make", "quickstart", f"ARGS=eval_steps=0 {SMALL}"]
        subprocess.run(command, cwd=checkout, check=True, timeout=300)
        final = checkout / "runs" / "quickstart" / "final"
        assert (final / "model.safetensors").is_file()
