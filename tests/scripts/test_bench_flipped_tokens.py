"""Rollouts of a step in one process and in several."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SMALL = ["tasks.arithmetic.num_prompts=2", "tasks.arithmetic.num_generations=4"]


@pytest.mark.slow
def test_in_float64_no_token_depends_on_the_number_of_processes(tmp_path: Path) -> None:
    options = [*SMALL, "per_device_train_batch_size=4", "bf16=false", "model.dtype=float64"]
    words = ["run=configs/rl/text_arithmetic.yaml", "ways=[cpu2]", "processes=[2]"]
    script = ROOT / "scripts/bench/flipped_tokens.py"
    command = [sys.executable, str(script), *words, f"options={json.dumps(options)}"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stderr.decode()[-3000:]
    line = json.loads(done.stdout)
    assert (line["completions"], line["processes"]) == (8, 2) and line["tokens"] > 8
    assert line["different_tokens"] == line["different_completions"] == 0
