"""Estimated against measured peak memory of short runs, for ways of sharing the model."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_peak_memory_is_estimated_within_15_percent() -> None:
    pytest.importorskip("deepspeed")
    words = ["ways=[one_process,fsdp2,zero3]", "width=512", "layers=8", "steps=2"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "scripts/bench/memory.py", *words]
    done = subprocess.run(command, capture_output=True, cwd=ROOT, env=environment)
    assert done.returncode == 0, done.stderr.decode()[-3000:]
    lines = [json.loads(line) for line in done.stdout.decode().splitlines()]
    assert [line["way"] for line in lines] == ["one_process", "fsdp2", "zero3"]
    assert all(abs(line["ratio"] - 1) <= 0.15 for line in lines), lines
