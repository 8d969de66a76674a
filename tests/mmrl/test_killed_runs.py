"""Runs that are killed at any moment, also while a checkpoint is written, and resumed."""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from omegaconf import OmegaConf

from tests.mmrl.runs import ACCELERATE, ROOT, command_line


@pytest.mark.slow
@pytest.mark.parametrize("accelerate", ["", str(ACCELERATE / "fsdp2_cpu2.yaml")])
def test_a_killed_run_ends_as_the_run_that_was_left_alone(
    accelerate: str, world: SimpleNamespace, tmp_path: Path
) -> None:
    words = [word for word in command_line(world, tmp_path) if not word.startswith("output_dir")]
    OmegaConf.save(OmegaConf.from_dotlist(words), tmp_path / "run.yaml")
    command = [sys.executable, "scripts/bench/killed_runs.py", f"run={tmp_path / 'run.yaml'}"]
    kills = 2 if accelerate else 4  # the first while a checkpoint is written
    command += ["steps=6", f"kills={kills}", "seed=3", "results=null"]
    command += [f"accelerate={accelerate}"] if accelerate else []
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)
    assert found["kills"] == kills and found["every_step_once"]
    assert found["same_metrics"] and found["same_weights"]
