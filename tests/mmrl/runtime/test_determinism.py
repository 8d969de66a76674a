"""Kernels by settings of the run: deterministic ones, products of float32 matrices in TF32."""

import subprocess
import sys

RUN = """
import os, sys, torch
from mmrl.run_config import RunConfig
from mmrl.training.start import start_processes
start_processes(RunConfig(output_dir="run", **{sys.argv[1]: True}))
print(torch.are_deterministic_algorithms_enabled(), os.environ.get("CUBLAS_WORKSPACE_CONFIG"),
      torch.get_float32_matmul_precision())
"""


def test_a_run_takes_the_kernels_that_are_set(tmp_path) -> None:
    said = [
        subprocess.run(
            [sys.executable, "-c", RUN, value],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for value in ("deterministic", "tf32")
    ]
    assert said == ["True :4096:8 highest", "False None high"]
