"""Launch configurations for GPUs, tried on the CPU.

A launched process does a run of `tests.mmrl.sharded_runs`: its words are folders of the world and
of the run, the kind and, as JSON, changed settings. Two are no settings: `logits_budget`, the bytes
of logits above which they are computed in parts, and `begun`, a checkpoint from which the process
does a second run, into a folder beside the first.
"""

import contextlib
import itertools
import json
import os
import shlex
import socket
import sys
from pathlib import Path
from typing import Any

import yaml

from mmrl.runtime import logits_budget
from tests.mmrl.launch_form import write_launch_form
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
    output.parent.mkdir(parents=True, exist_ok=True)
    words = run_words(world, output, kind, **changes)
    wait_for_end(launch(name, processes, output.parent, words))
    return output


def torchrun(line: str, world: Path, output: Path, kind: str, **changes: Any) -> Path:
    """Do a run as `run` does, on the nodes of a torchrun line, with one process on each."""
    options = shlex.split(line)[1 : shlex.split(line).index("-m") + 1]
    given = dict(itertools.pairwise(options))
    here = {given["--nproc_per_node"]: "1", given["--rdzv_endpoint"]: f"127.0.0.1:{find_port()}"}
    words = run_words(world, output, kind, **changes)
    options = [here.get(option, option) for option in options]
    launcher = ("torch.distributed.run", *options)
    nodes = range(int(given["--nnodes"]))
    wait_for_end([module_process("tests.mmrl.ways", words, *launcher) for _ in nodes])
    return output


def run_words(world: Path, output: Path, kind: str, **changes: Any) -> list[str]:
    """The words of a launched process."""
    return [str(world), str(output), kind, json.dumps(changes)]


def wait_for_end(nodes: list[Any]) -> None:
    """Wait for launchers.

    Raises:
        AssertionError: one has failed; with what it said.
    """
    for node in nodes:
        said = node.communicate(timeout=240)[1].decode()
        assert node.returncode == 0, said[-6000:]


if __name__ == "__main__":
    where, output, kind, changes = sys.argv[1:]
    settings = json.loads(changes)
    logits_budget.LOGITS_BUDGET = settings.pop("logits_budget", logits_budget.LOGITS_BUDGET)
    begun = settings.pop("begun", None)
    reinforce(world_in(Path(where)), Path(output), kind, **settings)
    if begun is not None:
        again = Path(f"{output}-continued")
        reinforce(world_in(Path(where)), again, kind, resume_from_checkpoint=begun, **settings)
