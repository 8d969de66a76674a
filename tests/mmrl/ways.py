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
from scripts.bench.launch_form import write_launch_form
from tests.mmrl.runs import launcher, module_process, world_in
from tests.mmrl.sharded_runs import reinforce


def find_port() -> int:
    """A free port of this machine, from 20000 on."""
    for port in range(20000 + os.getpid() % 10000, 40000):
        with socket.socket() as free, contextlib.suppress(OSError):
            free.bind(("127.0.0.1", port))
            return port
    raise RuntimeError("no free port")


def launch(name: str, processes: int, folder: Path, words: list[str]) -> list[Any]:
    """Start a run on each node of a launch configuration; nodes meet on the loopback address."""
    path = write_launch_form(name, processes, folder)
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
