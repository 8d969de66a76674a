"""Kernels by settings of the run: deterministic ones, products of float32 matrices in TF32."""

import subprocess
import sys
from pathlib import Path

RUN = """
import os, torch
from mmrl.run_config import RunConfig
from mmrl.training.start import start_processes
start_processes(RunConfig(output_dir="run", deterministic=True, tf32=True))
print(torch.are_deterministic_algorithms_enabled(), os.environ.get("CUBLAS_WORKSPACE_CONFIG"),
      torch.get_float32_matmul_precision())
"""


def test_a_run_takes_the_kernels_that_are_set(tmp_path: Path) -> None:
    options = {"cwd": tmp_path, "capture_output": True, "text": True, "check": True}
    said = subprocess.run([sys.executable, "-c", RUN], **options).stdout.strip()  # type: ignore[call-overload]
    assert said == "True :4096:8 high"
