"""A reward server in its own process, and the requests a client sends it."""

import base64
import http.client
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from PIL import Image

from tests.rewards.server.served import Server

ROOT = Path(__file__).resolve().parents[3]
MOODY = """
from mmrl.rewards import REWARDS
REWARDS["moody"] = "tests.rewards.server.moody_reward:MoodyReward"
"""


class Live(Server):
    """A running server that knows the moody reward.

    Args:
        folder: for its log and what it touches.
        arguments: of the command line.
        token: bearer token that requests bring; the server finds it in `TOKEN`.
    """

    def __init__(self, folder: Path, *arguments: str, token: str | None = None) -> None:
        self.token = token
        # as many threads as here: with another number, sums may be ordered otherwise
        own = {"OMP_NUM_THREADS": str(torch.get_num_threads()), "TOKEN": token or ""}
        super().__init__(folder, *arguments, environment=own, prelude=MOODY)

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

    def value(self, name: str, **labels: str) -> float:
        """A value of `/metrics`, summed over the labels that are not given."""
        return self.metric(name, self.token or "", **labels)


@contextmanager
def live(folder: Path, *arguments: str, token: str | None = None) -> Iterator[Live]:
    """A server that has ended when the block is left."""
    server = Live(folder, *arguments, token=token)
    with server:
        yield server


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
