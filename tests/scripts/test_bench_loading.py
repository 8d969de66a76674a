"""Host memory while a checkpoint is loaded by two processes that share one copy of the model."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LIMIT = 0.7
"""Of the checkpoint, on each of two processes."""


def measure(*words: str) -> list[dict]:
    """The lines of the benchmark for a checkpoint of 105 MB, half of it for bfloat16."""
    sizes = ["width=512", "layers=8", "vocabulary=2048", *words]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "scripts/bench/loading.py", *sizes]
    options = {"check": True, "capture_output": True, "cwd": ROOT, "env": environment}
    out = subprocess.run(command, **options).stdout  # type: ignore[call-overload]
    return [json.loads(line) for line in out.splitlines()]


@pytest.mark.slow
def test_processes_that_share_a_model_read_their_parts_of_the_checkpoint() -> None:
    for line in measure(
        "ways=[fsdp2.yaml,zero3.yaml]", "stored=bfloat16", "lora=true", "reference=true"
    ):
        for key in ("private", "uss", "resident", "maxrss"):
            assert len(line[key]) == 2 and 0.4 < max(line[key]) <= LIMIT, line
    [line] = measure("ways=[fsdp2.yaml]", "stored=bfloat16", "deferred=false")
    assert min(line["private"]) > 1, line  # without it
