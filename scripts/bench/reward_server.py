"""The reward server: throughput next to the reward called in this process, or a fuzz.

    python scripts/bench/reward_server.py items=2000 clients=16 servers=2 batch=32
    python scripts/bench/reward_server.py fuzz=10000

One JSON line. Throughput: items per second here and served, their ratio, latencies of a request in
milliseconds, and how many scores were lost, doubled or not those of this process. The
requests of `served` are made beforehand; `client` is the reward in client mode, with `clients`
requests under way, which encodes the pictures as well and spreads them over the servers.
Fuzz: the answers by status, what was wrong with any, the files and addresses that the server turned
to meanwhile, and how far its memory grew.
"""

from __future__ import annotations

import base64
import http.client
import json
import math
import os
import queue
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any, Literal

import numpy as np
from fuzzed_requests import LIMITS, TOKEN, fuzzed, png, problem
from PIL import Image, ImageDraw
from results import circumstances, report
from served import Server

from mmrl.config import check, load_config
from mmrl.config.command import Usage, run_command
from mmrl.rewards import PartialFailure, build_reward
from mmrl.types import Sample

ROUNDING = 1e-5
"""Of a score, by which batches of other sizes may differ."""
WORDS = ("a red circle", "two blue squares", "a green ring left of a cyan star", "four triangles")


@dataclass(kw_only=True)
class Config:
    """Sizes; `key=value` on the command line changes them."""

    model: str = "datasets/shapes/checkpoints/clip"
    """A directory of open_clip, or one of its architectures, which gets random weights."""
    device: str = "cpu"
    """Where the reward runs."""
    dtype: str = "float32"
    """Precision of its towers."""
    items: int = 2000
    """Pictures scored."""
    side: int = 256
    """Side of a picture in pixels."""
    pictures: Literal["flat", "smooth"] = "flat"
    """Shapes on a ground, or colours that run into each other, whose files are large."""
    clients: int = 16
    """Requests under way at the same time."""
    servers: int = 2
    """Server processes."""
    batch: int = 32
    """Pictures a server scores at once."""
    per_request: int = 8
    """Pictures of a request."""
    latency_ms: float = 20.0
    """How long the first picture of a batch waits for others."""
    repeats: int = 3
    """The fastest of so many counts."""
    threads: int = 0
    """Threads of torch in this process, shared by the servers; 0 for those torch takes."""
    fuzz: int = 0
    """Requests of the fuzz; 0 measures the throughput."""
    seed: int = 0
    """Names the pictures and the fuzz."""

    def __post_init__(self) -> None:
        for key in ("items", "side", "clients", "servers", "batch", "per_request", "repeats"):
            check(getattr(self, key) >= 1, key, getattr(self, key), "at least 1")

    @property
    def reward(self) -> dict[str, str]:
        """The reward that is measured."""
        return {"name": "clip", **{key: getattr(self, key) for key in ("model", "device", "dtype")}}


USAGE = Usage("python scripts/bench/reward_server.py", __doc__, Config)


def pictures(c: Config) -> list[Sample]:
    """Random pictures with a prompt each."""
    random = np.random.default_rng(c.seed)
    images = [PICTURES[c.pictures](random, c.side) for _ in range(c.items)]
    return [Sample(WORDS[n % len(WORDS)], image) for n, image in enumerate(images)]


def _flat(random: np.random.Generator, side: int) -> Image.Image:
    """Three shapes of one colour each on a ground, as in the shapes world."""
    colors = [tuple(color) for color in random.integers(0, 256, (4, 3)).tolist()]
    image = Image.new("RGB", (side, side), colors[0])
    draw = ImageDraw.Draw(image)
    for color in colors[1:]:
        x, y, radius = random.integers(side // 8, side - side // 8, 3).tolist()
        draw.regular_polygon((x, y, radius // 4 + 1), int(random.integers(3, 12)), fill=color)
    return image


def _smooth(random: np.random.Generator, side: int) -> Image.Image:
    """Colours that run into each other, to a file as large as that of a photograph."""
    coarse = random.integers(0, 256, (side // 16 or 1, side // 16 or 1, 3), np.uint8)
    return Image.fromarray(coarse).resize((side, side), Image.Resampling.BICUBIC)


PICTURES = {"flat": _flat, "smooth": _smooth}


def bodies(c: Config, samples: Sequence[Sample], run: int) -> list[bytes]:
    """Requests of `per_request` items; each run has its own ids, so that none is a repetition."""
    made = []
    for first in range(0, len(samples), c.per_request):
        part = enumerate(samples[first : first + c.per_request], first)
        items = [{"id": f"{n}", "prompt": s.prompt, "images": [_wire(s)]} for n, s in part]
        content = {"id": f"{run}-{first}", "reward": "clip", "items": items}
        made.append(json.dumps(content).encode())
    return made


def _wire(sample: Sample) -> dict[str, str]:
    assert isinstance(sample.completion, Image.Image)
    data = png(sample.completion, compress_level=1)
    return {"mime": "image/png", "data": base64.b64encode(data).decode()}


def ask(ports: Sequence[int], requests: Sequence[bytes], clients: int) -> tuple[float, list, list]:
    """Send all requests from so many clients, each keeping its connection to one server.

    Returns:
        Seconds for all, seconds of each, and the answered items.
    """
    left: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    for request in requests:
        left.put(request)
    start, latencies, items = threading.Barrier(clients + 1), [], []

    def client(n: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", ports[n % len(ports)], timeout=600)
        connection.connect()
        start.wait()
        while True:
            try:
                body = left.get_nowait()
            except queue.Empty:
                return
            began = time.perf_counter()
            connection.request("POST", "/v1/score", body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            content = json.loads(response.read())
            latencies.append(time.perf_counter() - began)
            if response.status != 200:
                raise RuntimeError(f"{response.status}: {content}")
            items.extend(content["items"])

    with ThreadPoolExecutor(clients) as pool:
        work = [pool.submit(client, n) for n in range(clients)]
        start.wait()
        began = time.perf_counter()
        for each in work:
            each.result()
    return time.perf_counter() - began, latencies, items


def measure(c: Config) -> dict[str, Any]:
    """Throughput here and served, in turns; the best of each."""
    import torch

    if c.threads:
        torch.set_num_threads(c.threads)
    samples = pictures(c)
    reward = build_reward(c.reward)
    reward(samples[: c.batch])
    runs = [bodies(c, samples, run) for run in range(c.repeats + 1)]
    here, served, latencies, expected, wrong = [], [], [], [], Counter()
    options = ", ".join(f"{key}: {value}" for key, value in c.reward.items())
    entry = f"{{{options}, max_batch_size: {c.batch}, max_latency_ms: {c.latency_ms}}}"
    own = {"OMP_NUM_THREADS": str(max(1, torch.get_num_threads() // c.servers))}
    with ExitStack() as stack:
        servers = []
        for _ in range(c.servers):
            folder = Path(stack.enter_context(TemporaryDirectory()))
            servers.append(Server(folder, f"rewards=[{entry}]", environment=own))
            stack.enter_context(servers[-1])
        for server in servers:
            server.loaded()
        ports = [server.port for server in servers]
        ask(ports, runs[-1][: 4 * c.servers], c.clients)
        started, cpu_here = sum(map(_cpu, servers)), 0.0
        for run in range(c.repeats):
            began, cpu = time.perf_counter(), time.process_time()
            expected = [
                score
                for n in range(0, c.items, c.batch)
                for score in reward(samples[n : n + c.batch])
            ]
            here.append(c.items / (time.perf_counter() - began))
            cpu_here += time.process_time() - cpu
            seconds, taken, items = ask(ports, runs[run], c.clients)
            served.append(c.items / seconds)
            latencies.append(taken)
            wrong += compared(items, expected)
        cpu_served = sum(map(_cpu, servers)) - started
        calls = sum(s.metric("reward_server_batch_items_count") for s in servers)
        scored = sum(s.metric("reward_server_batch_items_sum") for s in servers)
        client = through_client(c, servers, samples, expected)
    best = served.index(max(served))
    percentiles = np.percentile(latencies[best], (50, 95, 99)) * 1000
    return {
        "in_process_items_per_s": round(max(here), 1),
        "served_items_per_s": round(served[best], 1),
        "ratio": round(served[best] / max(here), 3),
        "in_process_cpu_ms_per_item": round(1000 * cpu_here / c.items / c.repeats, 3),
        "served_cpu_ms_per_item": round(1000 * cpu_served / c.items / c.repeats, 3),
        **{f"p{p}_ms": round(v, 1) for p, v in zip((50, 95, 99), percentiles, strict=True)},
        **{key: wrong[key] for key in ("lost", "doubled", "mismatched")},
        "mean_batch": round(scored / calls, 1),
        "client_ratio": round(client["client_items_per_s"] / max(here), 3),
        **client,
    }


def through_client(
    c: Config, servers: Sequence[Server], samples: Sequence[Sample], expected: Sequence[Any]
) -> dict[str, Any]:
    """The same samples once through the reward in client mode."""
    urls = [f"http://127.0.0.1:{server.port}" for server in servers]
    entry = {"name": "clip", "mode": "client", "url": urls, "deadline_s": 3600.0}
    reward = build_reward({**entry, "concurrency": c.clients, "batch_size": c.per_request})
    before, began = _scored(servers), time.perf_counter()
    try:
        found = list(reward(list(samples)))
    except PartialFailure as failure:
        found = failure.results
    seconds = time.perf_counter() - began
    lost = sum(isinstance(score, Exception) for score in found)
    return {
        "client_items_per_s": round(c.items / seconds, 1),
        "client_lost": lost,
        "client_doubled": round(_scored(servers) - before) - c.items + lost,
        "client_mismatched": sum(a != b for a, b in zip(found, expected, strict=True)) - lost,
    }


def _scored(servers: Sequence[Server]) -> float:
    return sum(s.metric("reward_server_items_total", outcome="scored") for s in servers)


def _cpu(server: Server) -> float:
    return server.metric("process_cpu_seconds_total")


def compared(items: Sequence[dict[str, Any]], expected: Sequence[float | None]) -> Counter[str]:
    """How many scores were lost, doubled, or wrong by more than batches of other sizes round."""
    times = Counter(int(item["id"]) for item in items)
    found = {int(item["id"]): item["score"] for item in items}
    return Counter(
        lost=len(expected) - len(found),
        doubled=sum(count - 1 for count in times.values()),
        mismatched=sum(not _close(found[n], expected[n]) for n in found),
    )


def _close(one: float | None, other: float | None) -> bool:
    if one is None or other is None:
        return one is other
    return math.isclose(one, other, rel_tol=ROUNDING, abs_tol=ROUNDING)


def attack(c: Config) -> dict[str, Any]:
    """Send fuzzed requests from several clients and look what became of the server."""
    rewards = f"rewards=[{{name: shapes}}, {{name: clip, model: {c.model}, device: cpu}}]"
    limits = [f"limits.{key}={value}" for key, value in LIMITS.items()]
    own = {"TOKEN": TOKEN, "OMP_NUM_THREADS": "1"}
    with TemporaryDirectory() as folder:
        canary = os.path.join(folder, "canary.png")
        Path(canary).write_bytes(png(Image.new("RGB", (8, 8), "red")))
        server = Server(Path(folder), rewards, *limits, "token_env=TOKEN", environment=own)
        with server:
            server.loaded()

            def one(n: int) -> tuple[int, str | None]:
                sent = fuzzed(Random(f"{c.seed} {n}"), canary)
                answer = server.exchange(sent.raw)
                return answer[0] if answer else 0, problem(sent, answer)

            with ThreadPoolExecutor(c.clients) as pool:
                list(pool.map(one, range(-200, 0)))  # what is loaded or grown once
                touched, memory = len(server.touched()), _resident(server)
                answers = list(pool.map(one, range(c.fuzz)))
            problems = [text for _, text in answers if text]
            return {
                "requests": c.fuzz,
                "status": dict(sorted(Counter(status for status, _ in answers).items())),
                "problems": len(problems),
                "first_problems": problems[:5],
                "touched": sorted(set(server.touched()[touched:]))[:10],
                "memory_mb": round(memory),
                "growth_mb": round(_resident(server) - memory, 1),
                "allowed_growth_mb": LIMITS["max_memory_mb"],
                "held_bytes_after": server.metric("reward_server_held_bytes", TOKEN),
                "exit_status": server.stop(),
            }


def _random_weights(architecture: str, folder: Path) -> str:
    import open_clip
    from safetensors.torch import save_file

    sizes: Any = open_clip.get_model_config(architecture)
    text = json.dumps({"model_cfg": sizes, "preprocess_cfg": {}})
    (folder / "open_clip_config.json").write_text(text)
    weights = open_clip.CLIP(**sizes).state_dict()
    save_file(weights, folder / "open_clip_model.safetensors")
    return str(folder)


def _resident(server: Server) -> float:
    return server.metric("process_resident_memory_bytes", TOKEN) / 2**20


def main(arguments: Sequence[str]) -> int:
    """Measure what the command line says; return the exit status."""
    return run_command(USAGE, arguments, lambda: run(load_config(Config, arguments)))


def run(c: Config) -> None:
    """Measure and print."""
    with TemporaryDirectory() as folder:
        if not Path(c.model).is_dir():
            c.model = _random_weights(c.model, Path(folder))
        result = attack(c) if c.fuzz else measure(c)
    config = {key: value for key, value in asdict(c).items() if bool(c.fuzz) == (key == "fuzz")}
    report({"bench": "reward_server", **circumstances(), "config": config, **result})


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
