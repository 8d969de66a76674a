"""The reward server: throughput beside the reward called in this process, and overload.

    python scripts/bench/reward_service.py repeats=3

Two JSON lines: items per second here and served, their ratio, latencies of a request, the answers
by status, and how many scores are not those of this process. `overload` has eight times as many
clients, of whose items more wait than a server takes; what is refused is sent again.
"""

import base64
import io
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from mmrl.config import check
from mmrl.config.command import Usage, read_settings


@dataclass(kw_only=True)
class Setting:
    """Sizes; `key=value` on the command line changes them."""

    model: str = "datasets/shapes/checkpoints/clip"
    """A directory of open_clip."""
    items: int = 2000
    """Pictures scored."""
    clients: int = 16
    """Requests under way at the same time."""
    servers: int = 2
    """Server processes."""
    batch: int = 32
    """Pictures a server scores at once."""
    per_request: int = 8
    """Pictures of a request."""
    repeats: int = 3
    """The fastest of so many counts."""


if __name__ == "__main__":  # before the seconds that torch takes
    USAGE = Usage("python scripts/bench/reward_service.py", __doc__, Setting)
    SETTING = read_settings(USAGE, sys.argv[1:])

import httpx  # noqa: E402
import numpy as np  # noqa: E402
from PIL import Image  # noqa: E402
from text_sampling import fastest, report  # noqa: E402

from mmrl.rewards import build_reward  # noqa: E402
from mmrl.types import Sample  # noqa: E402

CROWD, SIDE = 8, 256
"""Times the clients in the overload; side of a picture in pixels."""


def draw_samples(number: int) -> tuple[list[Sample], list[dict[str, Any]]]:
    """Pictures of few colours with a prompt each, and the items of requests for them."""
    samples, items = [], []
    for n, patches in enumerate(np.random.default_rng(0).integers(0, 256, (number, 4, 4, 3), "u1")):
        image = Image.fromarray(patches).resize((SIDE, SIDE), Image.Resampling.NEAREST)
        samples.append(Sample(f"{n % 7} shapes", image))
        image.save(buffer := io.BytesIO(), "PNG")
        data = {"mime": "image/png", "data": base64.b64encode(buffer.getvalue()).decode()}
        items.append({"id": f"{n}", "prompt": samples[-1].prompt, "images": [data]})
    return samples, items


@contextmanager
def serve(s: Setting) -> Iterator[str]:
    """The address of a server in a process of its own, once its reward is loaded."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = f"model: {s.model}, max_batch_size: {s.batch}"
    words = [f"rewards=[{{name: clip, {options}, max_latency_ms: 20}}]", f"port={port}"]
    words += [
        f"limits.max_items={s.per_request}",
        f"limits.max_waiting={2 * s.clients * s.per_request}",
    ]
    command = [sys.executable, "-m", "mmrl.rewards.server", *words]
    running, url = subprocess.Popen(command, stderr=subprocess.DEVNULL), f"http://127.0.0.1:{port}"
    try:
        while True:
            check(running.poll() is None, "model", s.model, "one that the server loads")
            with suppress(httpx.TransportError):
                if httpx.get(f"{url}/v1/health").json()["status"] == "ok":
                    break
            time.sleep(0.1)
        yield url
    finally:
        running.terminate()
        running.wait()


def ask(urls: list[str], items: list[Any], size: int, clients: int) -> dict[str, Any]:
    """Have all items scored by so many clients at a time; seconds, answers and scores."""
    seconds, statuses, scores = [], Counter[int](), {}
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)

    def one(first: int) -> None:
        content: dict[str, Any] = {"id": f"{time.time_ns()}-{first}", "reward": "clip"}
        content["items"], url = items[first : first + size], urls[first // size % len(urls)]
        while True:
            began = time.perf_counter()
            answer = client.post(f"{url}/v1/score", json=content)
            statuses[answer.status_code] += 1
            if answer.status_code == 200:
                break
            time.sleep(0.2)
        seconds.append(time.perf_counter() - began)
        scores.update({item["id"]: item["score"] for item in answer.json()["items"]})

    started = time.perf_counter()
    with httpx.Client(timeout=600, limits=limits) as client, ThreadPoolExecutor(clients) as pool:
        list(pool.map(one, range(0, len(items), size)))
    speed = len(items) / (time.perf_counter() - started)
    latencies = {f"p{p}_ms": 1000 * np.percentile(seconds, p) for p in (50, 95, 99)}
    return {"served_items_per_s": speed, **latencies, "statuses": statuses, "scores": scores}


def measure(s: Setting) -> Iterator[dict[str, Any]]:
    """The line of the throughput, then that of the overload."""
    samples, items = draw_samples(s.items)
    parts = [samples[n : n + s.batch] for n in range(0, s.items, s.batch)]
    reward = build_reward({"name": "clip", "model": s.model})
    here, expected = fastest(lambda: [score for part in parts for score in reward(part)], s.repeats)
    with ExitStack() as stack:
        urls = [stack.enter_context(serve(s)) for _ in range(s.servers)]
        for what, clients in {"throughput": s.clients, "overload": CROWD * s.clients}.items():
            ask(urls, items[: s.batch], s.per_request, clients)
            runs = (ask(urls, items, s.per_request, clients) for _ in range(s.repeats))
            line = max(runs, key=lambda run: run["served_items_per_s"])
            scores = line.pop("scores")
            right = np.isclose([scores[item["id"]] for item in items], expected)
            line |= {"what": what, "in_process_items_per_s": s.items / here}
            line["ratio"] = line["served_items_per_s"] / line["in_process_items_per_s"]
            yield line | {"wrong": int((~right).sum())}


if __name__ == "__main__":
    for result in measure(SETTING):
        report("reward_service", SETTING, result)
