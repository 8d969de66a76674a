"""A reward server in its own process, watched from outside, and the requests a client sends it."""

from __future__ import annotations

import base64
import http.client
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from PIL import Image

from tests import pictures

ROOT = Path(__file__).resolve().parents[3]
WATCHED = """
import runpy, sys
from mmrl.rewards import REWARDS
REWARDS["moody"] = "tests.rewards.server.moody_reward:MoodyReward"
touched = open(sys.argv[1], "a", buffering=1)
sys.argv[:] = ["mmrl.rewards.server", *sys.argv[2:]]
events = {"open", "os.listdir", "socket.connect", "subprocess.Popen", "os.exec", "os.system"}
sys.addaudithook(lambda event, args: event in events and touched.write(f"{event} {args[0]!r}\\n"))
runpy.run_module("mmrl.rewards.server", run_name="__main__", alter_sys=True)
"""
"""The server, which knows the moody reward. Files and addresses that it turns to are noted."""


class Live:
    """A running server on a free port.

    Args:
        folder: for its log and for what it touches.
        arguments: of the command line.
        token: bearer token that requests bring; the server finds it in `TOKEN`.
    """

    def __init__(self, folder: Path, *arguments: str, token: str | None = None) -> None:
        self.log, self._touched, self.token = folder / "log", folder / "touched", token
        command = [sys.executable, "-c", WATCHED, str(self._touched), *arguments, "port=0"]
        # as many threads as here: with another number, sums may be ordered otherwise
        own = {"OMP_NUM_THREADS": str(torch.get_num_threads()), "TOKEN": token or ""}
        own |= {"PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1"}
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                command, cwd=ROOT, stderr=log, env={**os.environ, **own}
            )
        address = re.compile(r"listening at http://127.0.0.1:(\d+),")
        self.port = int(self._wait(lambda: address.search(self.log.read_text()))[1])

    def _wait(self, found: Callable[[], Any]) -> Any:
        deadline = time.monotonic() + 300
        while time.monotonic() < deadline and self.process.poll() is None:
            if result := found():
                return result
            time.sleep(0.05)
        raise TimeoutError(self.log.read_text())

    def touched(self) -> list[str]:
        """What it turned to so far, without what tells it about its own process."""
        lines = self._touched.read_text().splitlines()
        return [line for line in lines if "'/proc/" not in line]

    def loaded(self) -> None:
        """Wait until every reward is loaded."""
        self._wait(lambda: self.get("/v1/health")[1]["status"] == "ok")

    def headers(self) -> dict[str, str]:
        """Headers of an honest request."""
        kind = {"Content-Type": "application/json"}
        return kind if self.token is None else {**kind, "Authorization": f"Bearer {self.token}"}

    def send(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body of an answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request(method, path, body, {**self.headers(), **(headers or {})})
            response = connection.getresponse()
            return response.status, dict(response.getheaders()), response.read()
        finally:
            connection.close()

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

    def stop(self) -> int:
        """Ask it to end; its exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=60)

    def __enter__(self) -> Live:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()


@contextmanager
def live(folder: Path, *arguments: str, token: str | None = None) -> Iterator[Live]:
    """A server that has ended when the block is left."""
    with Live(folder, *arguments, token=token) as server:
        yield server


def png(image: Image.Image) -> dict[str, str]:
    """An image as requests carry it."""
    return {"mime": "image/png", "data": base64.b64encode(pictures.png(image)).decode()}


def picture(name: str, prompt: str, image: Image.Image, **metadata: Any) -> dict[str, Any]:
    """An item with an image."""
    return {"id": name, "prompt": prompt, "images": [png(image)], "metadata": metadata}


def words(name: str, completion: str = "", **metadata: Any) -> dict[str, Any]:
    """An item with a text."""
    return {"id": name, "prompt": "p", "completion": completion, "metadata": metadata}
