"""A reward server in a process of its own, and the requests a client sends it."""

import base64
import http.client
import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from PIL import Image

ROOT = Path(__file__).resolve().parents[3]

WATCHED = """
import runpy, sys
from rewards import REWARDS

REWARDS["moody"] = "tests.rewards.server.moody_reward:MoodyReward"
touched = open(sys.argv.pop(1), "a", buffering=1)
events = {"open", "os.listdir", "socket.connect", "subprocess.Popen", "os.exec", "import"}
sys.addaudithook(lambda event, args: event in events and touched.write(f"{event} {args[0]!r}\\n"))
runpy.run_module("rewards.server", run_name="__main__", alter_sys=True)
"""
"""The server, with the files, modules and addresses it turns to in a file."""


class Live:
    """A running server.

    Args:
        folder: for its log (`log`) and what it touches (`touched`).
        arguments: of the command line.
        environment: added to that of the tests.
    """

    def __init__(
        self, folder: Path, *arguments: str, environment: Mapping[str, str] | None = None
    ) -> None:
        self.log, self.touched = folder / "log", folder / "touched"
        # one thread here as in the tests' own process: with more, sums may be ordered otherwise
        own = {"OMP_NUM_THREADS": str(threads()), "PYTHONPATH": str(ROOT)}
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-c", WATCHED, str(self.touched), *arguments, "port=0"],
                cwd=ROOT, stderr=log, env={**os.environ, **own, **(environment or {})},
            )  # fmt: skip
        self.token: str | None = None
        self.port = self._port()

    def _port(self) -> int:
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline and self.process.poll() is None:
            for line in self.lines():
                if line["message"] == "listening":
                    return int(line["url"].rpartition(":")[2])
            time.sleep(0.05)
        raise AssertionError(self.log.read_text())

    def lines(self) -> list[dict[str, Any]]:
        """The log so far; every line of it is a JSON object."""
        text = self.log.read_text()
        return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]

    def loaded(self) -> "Live":
        """Wait until every reward is loaded."""
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            health = self.get("/v1/health")[1]
            if health["status"] == "ok":
                return self
            assert health["status"] == "loading", health
            time.sleep(0.05)
        raise AssertionError("it does not load")

    def send(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body of an answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request(method, path, body, {**self._headers(), **(headers or {})})
            response = connection.getresponse()
            return response.status, dict(response.getheaders()), response.read()
        finally:
            connection.close()

    def _headers(self) -> dict[str, str]:
        kind = {"Content-Type": "application/json"}
        return kind if self.token is None else {**kind, "Authorization": f"Bearer {self.token}"}

    def get(self, path: str) -> tuple[int, Any]:
        """Status and JSON of a path."""
        status, _, body = self.send("GET", path)
        return status, json.loads(body)

    def post(self, content: Any) -> tuple[int, Any]:
        """Status and JSON of a request to score."""
        status, _, body = self.send("POST", "/v1/score", json.dumps(content))
        return status, json.loads(body)

    def score(self, reward: str, items: Sequence[Mapping[str, Any]], name: str = "r") -> list[Any]:
        """The items of an answer with status 200."""
        status, answer = self.post({"id": name, "reward": reward, "items": items})
        assert status == 200, answer
        assert (answer["id"], answer["reward"]) == (name, reward)
        assert [item["id"] for item in answer["items"]] == [item["id"] for item in items]
        return answer["items"]

    def metric(self, name: str, **labels: str) -> float:
        """A value of `/metrics`, summed over the labels that are not given."""
        wanted = [f'{key}="{value}"' for key, value in labels.items()]
        text = self.send("GET", "/metrics")[2].decode()
        rows = [line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#")]
        return sum(
            float(value)
            for key, value in rows
            if key.partition("{")[0] == name and all(each in key for each in wanted)
        )

    def stop(self) -> int:
        """Ask it to end; its exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=60)


@contextmanager
def live(folder: Path, *arguments: str, **options: Any) -> Iterator[Live]:
    """A server that has ended when the block is left."""
    server = Live(folder, *arguments, **options)
    try:
        yield server
    finally:
        if server.process.poll() is None:
            server.process.kill()
        server.process.wait()


def threads() -> int:
    """Threads of torch in this process."""
    import torch

    return torch.get_num_threads()


def png(image: Image.Image) -> dict[str, str]:
    """An image as requests carry it."""
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return {"mime": "image/png", "data": base64.b64encode(buffer.getvalue()).decode()}


def picture(name: str, prompt: str, image: Image.Image, **metadata: Any) -> dict[str, Any]:
    """An item with an image."""
    return {"id": name, "prompt": prompt, "images": [png(image)], "metadata": metadata}


def words(name: str, completion: str = "", **metadata: Any) -> dict[str, Any]:
    """An item with a text."""
    return {"id": name, "prompt": "p", "completion": completion, "metadata": metadata}
