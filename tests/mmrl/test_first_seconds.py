"""What a command does before its work begins: signals, what libraries write, OpenMP, kernels."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

NAMES = ("GOMP_SPINCOUNT", "KMP_BLOCKTIME", "OMP_WAIT_POLICY")
HIDING = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
HIDING += ("ACCELERATE_USE_CPU",)
ASLEEP = {"GOMP_SPINCOUNT": "0", "KMP_BLOCKTIME": "0"}
NO_GPU = {"CUDA_VISIBLE_DEVICES": ""}
COMMAND = "import sys; sys.argv = ['-m']; import mmrl"
"""Imports the package as `python -m mmrl.…` does before anything else."""
KERNELS = """
import os, torch
from mmrl.run_config import RunConfig
from mmrl.training.start import start_processes
start_processes(RunConfig(output_dir="run", deterministic=True, tf32=True))
print(torch.are_deterministic_algorithms_enabled(), os.environ.get("CUBLAS_WORKSPACE_CONFIG"),
      torch.get_float32_matmul_precision())
"""


def run(code: str, folder: Path | None = None, **variables: str) -> subprocess.CompletedProcess:
    kept = {k: v for k, v in os.environ.items() if k not in (*NAMES, *HIDING)}
    command, environment = [sys.executable, "-c", code], kept | variables
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


def test_sigusr1_ends_no_command_from_its_first_import_on_and_is_not_inherited() -> None:
    shown = "subprocess.run(['sh', '-c', 'trap \"echo trapped\" USR1; kill -USR1 $$'])"
    code = f"{COMMAND}, os, signal, subprocess; os.kill(os.getpid(), signal.SIGUSR1); {shown}"
    done = run(code)
    assert (done.returncode, done.stdout) == (0, "trapped\n"), done.stderr


def test_no_library_writes_before_a_command_does() -> None:
    done = run(f"{COMMAND}; import peft; from mmrl.models import load_policy")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_run_takes_the_kernels_that_are_set(tmp_path: Path) -> None:
    assert run(KERNELS, tmp_path).stdout.strip() == "True :4096:8 high"


@pytest.mark.parametrize(
    ("variables", "seen"),
    [
        (NO_GPU, ASLEEP),
        ({"HIP_VISIBLE_DEVICES": ""}, ASLEEP),
        ({"CUDA_VISIBLE_DEVICES": "0", "ACCELERATE_USE_CPU": "true"}, ASLEEP),
        ({"CUDA_VISIBLE_DEVICES": "0"}, {}),
        ({"ROCR_VISIBLE_DEVICES": "1"}, {}),
        ({**NO_GPU, "GOMP_SPINCOUNT": "5"}, {**ASLEEP, "GOMP_SPINCOUNT": "5"}),
        ({**NO_GPU, "OMP_WAIT_POLICY": "active"}, {"OMP_WAIT_POLICY": "active"}),
    ],
)
def test_openmp_sleeps_on_a_cpu_unless_the_user_says_otherwise(variables: dict, seen: dict) -> None:
    code = "import mmrl, os, json, sys; print(json.dumps([sorted(sys.modules), dict(os.environ)]))"
    modules, environment = json.loads(run(code, **variables).stdout)
    assert {name: environment[name] for name in NAMES if name in environment} == seen
    assert "torch" not in modules
