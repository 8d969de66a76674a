"""Place the processes of a run on a Ray cluster, with the servers that it uses.

    python scripts/launch_ray.py launch=configs/ray/engine.yaml config=configs/rl/….yaml key=value …

accelerate stays what runs: each bundle of the cluster gets one process of `accelerate launch`, and
what follows `launch=` goes to the run. In it, `{engine}` is the address of the server of that
name. All get the token that `token_env: MMRL_TOKEN` names. Where one process fails, all are ended.
Ray is not a dependency: `pip install ray`; checkout and packages are the same on all nodes.
"""

from __future__ import annotations

import os
import secrets
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from mmrl.config import (  # noqa: E402
    ConfigError,
    Settings,
    above,
    at_least,
    check,
    import_extra,
    load_config,
)
from mmrl.config.command import Usage, run_command  # noqa: E402

TOKEN = "MMRL_TOKEN"
TAIL = 60
"""Lines of a process that failed in the message."""


@dataclass(kw_only=True)
class ServerSettings(Settings):
    """A server beside the run, in its own bundle."""

    command: str = ""
    """What starts it; `{host}` and `{port}` are where it has to listen."""
    cpus: Annotated[float, above(0)] = 1
    """CPUs of its bundle."""
    gpus: Annotated[float, at_least(0)] = 0
    """GPUs of its bundle."""


@dataclass(kw_only=True)
class RayConfig(Settings):
    """Settings of `scripts/launch_ray.py`, in the file `launch=` names."""

    address: str = "auto"
    """Of the cluster, as `ray.init` takes it."""
    processes: Annotated[int, at_least(1)] = 1
    """Processes of the run, one for each device."""
    cpus: Annotated[float, above(0)] = 1
    """CPUs of the bundle of a process."""
    gpus: Annotated[float, at_least(0)] = 1
    """GPUs of the bundle of a process."""
    accelerate: str = "configs/accelerate/multi_gpu.yaml"
    """Configuration of `accelerate launch`, which says how weights are shared."""
    module: str = "mmrl.rl"
    """What runs."""
    servers: dict[str, ServerSettings] = field(default_factory=dict)
    """Engines and reward servers by name, started before the run."""
    start_s: Annotated[float, above(0)] = 900
    """Seconds until all servers listen."""

    @property
    def bundles(self) -> list[dict[str, float]]:
        """What the cluster has to have: for each server, then for each process."""
        owners = [*self.servers.values(), *[self] * self.processes]
        return [{"CPU": own.cpus, **({"GPU": own.gpus} if own.gpus else {})} for own in owners]


class Process:
    """A process on a node of the cluster; its lines go to the log of the driver."""

    def __init__(self, name: str) -> None:
        self.name, self.process = name, None
        self.lines: deque[str] = deque(maxlen=TAIL)

    def find_address(self) -> tuple[str, int]:
        """The address of the node, and a port that is free."""
        ray = import_extra("ray", "ray")
        with socket.socket() as probe:
            probe.bind(("", 0))
            return ray.util.get_node_ip_address(), probe.getsockname()[1]

    def run(self, command: Sequence[str], variables: Mapping[str, str]) -> tuple[int, str]:
        """Run a command to its end; return its exit status and last lines."""
        self.process = subprocess.Popen(
            command,
            cwd=ROOT,
            env={**os.environ, **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip())
            print(f"[{self.name}] {line}", end="", flush=True)
        return self.process.wait(), "\n".join(self.lines)

    def listens(self, host: str, port: int) -> bool:
        """Whether something answers at an address."""
        with socket.socket() as probe:
            probe.settimeout(1)
            return probe.connect_ex((host, port)) == 0

    def stop(self) -> None:
        """End it and what it has started."""
        if self.process is not None and self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGTERM)


def launch(config: RayConfig, words: Sequence[str]) -> int:
    """Run until all processes have ended, or one has failed; return the exit status. Raises
    ConfigError: the cluster lacks what the bundles ask for. Raises RuntimeError: a server does not
    start."""
    ray = import_extra("ray", "ray")
    ray.init(address=config.address, log_to_driver=True)
    needed = config.bundles
    advice = "Start further nodes, or lower processes, servers, cpus or gpus."
    for kind in ("CPU", "GPU"):
        asked = sum(each.get(kind, 0) for each in needed)
        there = ray.cluster_resources().get(kind, 0)
        allowed = f"{there:g}, what the cluster has"
        check(asked <= there, f"{kind}s of all bundles", asked, allowed, advice)
    group = ray.util.placement_group(needed)
    if not ray.get(group.ready(), timeout=config.start_s):
        raise ConfigError("the bundles fit no node of the cluster; lower their cpus or gpus.")
    remote = ray.remote(max_concurrency=4)(Process)
    names = [*config.servers, *(f"process {n}" for n in range(config.processes))]
    actors = []
    for n, (name, bundle) in enumerate(zip(names, needed, strict=True)):
        strategy = ray.util.scheduling_strategies.PlacementGroupSchedulingStrategy(group, n)
        options = {"num_cpus": bundle["CPU"], "num_gpus": bundle.get("GPU", 0)}
        actors.append(remote.options(scheduling_strategy=strategy, **options).remote(name))
    try:
        return _run(ray, config, words, dict(zip(names, actors, strict=True)))
    finally:
        ray.get([actor.stop.remote() for actor in actors])
        ray.util.remove_placement_group(group)


def _run(ray: Any, config: RayConfig, words: Sequence[str], actors: Mapping[str, Any]) -> int:
    token = {TOKEN: os.environ.get(TOKEN) or secrets.token_hex(32)}
    variables = {**token, "VLLM_API_KEY": token[TOKEN]}
    running, urls, waiting = {}, {}, {}
    for name, server in config.servers.items():
        host, port = ray.get(actors[name].find_address.remote())
        command = server.command.replace("{host}", host).replace("{port}", str(port))
        running[actors[name].run.remote(shlex.split(command), variables)] = name
        urls[name], waiting[name] = f"http://{host}:{port}", (host, port)
    end = time.monotonic() + config.start_s
    while waiting:
        _check_ended(ray, running, 1.0)
        if time.monotonic() > end:
            raise RuntimeError(f"{', '.join(waiting)} did not listen within {config.start_s:g} s")
        waiting = {n: at for n, at in waiting.items() if not ray.get(actors[n].listens.remote(*at))}
    for name, url in urls.items():
        words = [word.replace(f"{{{name}}}", url) for word in words]
    own = {name: actor for name, actor in actors.items() if name not in config.servers}
    host, port = ray.get(next(iter(own.values())).find_address.remote())
    for rank, (name, actor) in enumerate(own.items()):
        place = f"--num_processes {len(own)} --num_machines {len(own)} --machine_rank {rank}"
        place += f" --main_process_ip {host} --main_process_port {port}"
        start = f"{sys.executable} -m accelerate.commands.launch --config_file {config.accelerate}"
        command = [*shlex.split(f"{start} {place} -m {config.module}"), *words]
        running[actor.run.remote(command, variables)] = name
    left = set(own)
    while left:
        left -= _check_ended(ray, running, 5.0)
    return 0


def _check_ended(ray: Any, running: dict[Any, str], seconds: float) -> set[str]:
    """The names of processes that ended well meanwhile. Raises RuntimeError: one has failed."""
    ended, found = set(), ray.wait([*running], timeout=seconds)[0]
    for reference in found:
        (status, tail), name = ray.get(reference), running.pop(reference)
        if status:
            raise RuntimeError(f"{name} ended with status {status}, and so do all others:\n{tail}")
        ended.add(name)
    return ended


USAGE = Usage("python scripts/launch_ray.py", __doc__, RayConfig)


def main(arguments: Sequence[str]) -> int:
    """Launch as the command line says; return the exit status."""
    return run_command(USAGE, arguments, lambda: _main(arguments), RuntimeError)


def _main(arguments: Sequence[str]) -> int:
    given = [word.partition("=")[2] for word in arguments if word.startswith("launch=")]
    words = [word for word in arguments if not word.startswith("launch=")]
    check(len(given) == 1, "launch", given, "the path of one file, see configs/ray")
    return launch(load_config(RayConfig, [f"config={given[0]}"]), words)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
