"""Launch configurations for GPUs, tried on the CPU.

A launched process does a run of `tests.mmrl.sharded_runs`: its words are folders of the world and
of the run, the kind and, as JSON, changed settings; `logits_budget` is no setting, but the bytes of
logits above which they are computed in parts.
"""

import contextlib
import json
import os
import socket
import sys
from pathlib import Path
from typing import Any

import yaml

from mmrl.runtime import logits_budget
from tests.mmrl.runs import ACCELERATE, launcher, module_process, world_in
from tests.mmrl.sharded_runs import reinforce


def write_cpu_form(name: str, processes: int, folder: Path) -> Path:
    """A file of `configs/accelerate` for some processes on the CPU, otherwise as it is.

    Two groups share a copy each where a file has groups.
    """
    settings = yaml.safe_load((ACCELERATE / name).read_text())
    settings |= {"use_cpu": True, "num_processes": processes}
    settings["gpu_ids"] = ",".join(["-1"] * max(2, processes // settings["num_machines"]))
    if "parallelism_config" in settings:
        sizes = {"dp_replicate_size": 2, "dp_shard_size": processes // 2}
        settings["parallelism_config"] = {f"parallelism_config_{k}": n for k, n in sizes.items()}
    path = folder / f"{Path(name).stem}_{processes}.yaml"
    path.write_text(yaml.safe_dump(settings))
    return path


def find_port() -> int:
    """A free port of this machine, from 20000 on."""
    for port in range(20000 + os.getpid() % 10000, 40000):
        with socket.socket() as free, contextlib.suppress(OSError):
            free.bind(("127.0.0.1", port))
            return port
    raise RuntimeError("no free port")


def launch(name: str, processes: int, folder: Path, words: list[str]) -> list[Any]:
    """Start a run on each node of a launch configuration; nodes meet on the loopback address."""
    path = write_cpu_form(name, processes, folder)
    nodes = yaml.safe_load(path.read_text())["num_machines"]
    *head, last = launcher(path)
    place = ["--main_process_ip", "127.0.0.1", "--main_process_port", str(find_port())]
    return [
        module_process("tests.mmrl.ways", words, *head, *place, "--machine_rank", str(node), last)
        for node in range(nodes)
    ]


def run(name: str, processes: int, world: Path, output: Path, kind: str, **changes: Any) -> Path:
    """Do a run in a launch configuration, and wait for it; the run directory.

    Raises:
        AssertionError: a node has failed; with what it said.
    """
    words = [str(world), str(output), kind, json.dumps(changes)]
    output.parent.mkdir(parents=True, exist_ok=True)
    for node in launch(name, processes, output.parent, words):
        said = node.communicate(timeout=240)[1].decode()
        assert node.returncode == 0, said[-6000:]
    return output


if __name__ == "__main__":
    where, output, kind, changes = sys.argv[1:]
    settings = json.loads(changes)
    logits_budget.LOGITS_BUDGET = settings.pop("logits_budget", logits_budget.LOGITS_BUDGET)
    reinforce(world_in(Path(where)), Path(output), kind, **settings)
