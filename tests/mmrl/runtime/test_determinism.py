"""Deterministic kernels by a setting of the run."""

import subprocess
import sys

RUN = """
import os, sys, torch
from mmrl.run_config import RunConfig
from mmrl.training.start import start_processes
start_processes(RunConfig(output_dir="run", deterministic=sys.argv[1] == "true"))
print(torch.are_deterministic_algorithms_enabled(), os.environ.get("CUBLAS_WORKSPACE_CONFIG"))
"""


def test_a_run_takes_deterministic_kernels_where_it_is_set(tmp_path) -> None:
    said = [
        subprocess.run(
            [sys.executable, "-c", RUN, value],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for value in ("true", "false")
    ]
    assert said == ["True :4096:8", "False None"]
