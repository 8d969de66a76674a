"""What the commands set before torch is imported: its OpenMP sleeps where only the CPU computes."""

import json
import os
import subprocess
import sys

import pytest

NAMES = ("GOMP_SPINCOUNT", "KMP_BLOCKTIME", "OMP_WAIT_POLICY")
HIDING = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
HIDING += ("ACCELERATE_USE_CPU",)
ASLEEP = {"GOMP_SPINCOUNT": "0", "KMP_BLOCKTIME": "0"}
NO_GPU = {"CUDA_VISIBLE_DEVICES": ""}


def run(code: str, **variables: str) -> subprocess.CompletedProcess:
    kept = {k: v for k, v in os.environ.items() if k not in (*NAMES, *HIDING)}
    command = [sys.executable, "-c", code]
    return subprocess.run(command, env=kept | variables, capture_output=True, text=True, check=True)


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
