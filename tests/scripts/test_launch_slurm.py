"""The SLURM launcher with two nodes on this machine: `srun` and `scontrol` are small programs."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.mmrl.launch_form import write_launch_form
from tests.mmrl.runs import ROOT, command_line, metrics, write_world
from tests.mmrl.ways import find_port

SCRIPT = ROOT / "scripts" / "launch_slurm.sh"
SRUN = """#!/usr/bin/env bash
shift  # --kill-on-bad-exit
started=()
for node in $(seq 0 $((SLURM_NNODES - 1))); do
    SLURM_NODEID=$node "$@" &
    started+=($!)
done
trap 'kill -USR1 "${started[@]}"' USR1
status=0
for node in "${started[@]}"; do
    until wait "$node"; do kill -0 "$node" 2>/dev/null || { status=1; break; }; done
done
exit $status
"""


def allocation(folder: Path) -> dict[str, str]:
    """The environment of a job on two nodes with one GPU each, both of them this machine."""
    for name, text in {"srun": SRUN, "scontrol": "#!/bin/sh\necho 127.0.0.1\n"}.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    port = find_port()
    return (
        {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "SLURM_NNODES": "2"}
        | {"SLURM_GPUS_ON_NODE": "1", "SLURM_JOB_NODELIST": "node[1-2]"}
        | {"SLURM_JOB_ID": str(port - 20000), "OMP_NUM_THREADS": "1"}
    )


@pytest.mark.slow
def test_two_nodes_of_a_job_train_together_and_keep_a_checkpoint_when_they_are_warned(
    tmp_path: Path,
) -> None:
    world = write_world(tmp_path / "world")
    settings, output = write_launch_form("two_nodes/fsdp2.yaml", 2, tmp_path), tmp_path / "run"
    words = ["-m", "mmrl.rl", *command_line(world, output), "max_steps=40", "save_steps=0"]
    log, deadline = tmp_path / "job.log", time.monotonic() + 200
    with log.open("wb") as file:
        job = subprocess.Popen(
            ["bash", str(SCRIPT), str(settings), *words],
            cwd=ROOT,
            env={**allocation(tmp_path), "PYTHON": sys.executable},
            stderr=file,
            start_new_session=True,
        )
    try:
        while not (output / "metrics.jsonl").exists() or len(metrics(output)) < 2:
            assert job.poll() is None and time.monotonic() < deadline, log.read_text()[-4000:]
            time.sleep(0.1)
        job.send_signal(signal.SIGUSR1)
        while not list((output / "checkpoints").glob("[0-9]*")):
            assert job.poll() is None and time.monotonic() < deadline, log.read_text()[-4000:]
            time.sleep(0.1)
        status = job.wait(timeout=120)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(job.pid, signal.SIGKILL)
    assert status == 0, log.read_text()[-4000:]
    assert (output / "final").is_dir() and metrics(output)[-1]["step"] == 40
    assert (output / "train.rank1.log").exists()
