"""A small server that answers the calls of huggingface_hub that upload a folder, over HTTP."""

import base64
import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

TOKEN = "hf_aTokenOfTheTestThatNoLogShows"


class Hub(ThreadingHTTPServer):
    """Keeps what is created and uploaded; small files come in a commit, others by LFS.

    Attributes:
        created: bodies of the requests that create repositories.
        files: content of what was committed, by path.
        failing: whether commits are refused.
    """

    def __init__(self, failing: bool) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self.failing, self.created = failing, list[dict[str, Any]]()
        self.files: dict[str, bytes] = {}
        self.blobs: dict[str, bytes] = {}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


@contextmanager
def serve_hub(failing: bool = False) -> Iterator[Hub]:
    """A hub that runs inside the context."""
    hub = Hub(failing)
    thread = Thread(target=hub.serve_forever)
    thread.start()
    try:
        yield hub
    finally:
        hub.shutdown()
        thread.join()
        hub.server_close()


class _Answer(BaseHTTPRequestHandler):
    server: Hub

    def log_message(self, *_: object) -> None:
        pass

    def _reply(self, content: Any, status: int = 200) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def do_PUT(self) -> None:
        self.server.blobs[self.path.split("/")[-1]] = self._body()
        self._reply({})

    def do_GET(self) -> None:
        self._reply({"error": "Not found"}, 404)

    def do_POST(self) -> None:
        body = self._body()
        if self.path == "/api/validate-yaml":  # of the card, which anybody may ask
            self._reply({"errors": [], "warnings": []})
        elif self.headers.get("Authorization") != f"Bearer {TOKEN}":
            self._reply({"error": "Invalid credentials"}, 401)
        elif self.path == "/api/repos/create":
            self.server.created.append(json.loads(body))
            self._reply({"url": f"{self.server.url}/me/{json.loads(body)['name']}"})
        elif "/preupload/" in self.path:
            paths = [file["path"] for file in json.loads(body)["files"]]
            modes = ["lfs" if path.endswith(".safetensors") else "regular" for path in paths]
            found = [
                {"path": path, "uploadMode": mode, "shouldIgnore": False}
                for path, mode in zip(paths, modes, strict=True)
            ]
            self._reply({"files": found})
        elif self.path.endswith("/info/lfs/objects/batch"):
            objects = json.loads(body)["objects"]
            for each in objects:
                each["actions"] = {"upload": {"href": f"{self.server.url}/blob/{each['oid']}"}}
            self._reply({"transfer": "basic", "objects": objects})
        elif "/commit/" in self.path and not self.server.failing:
            self._commit(body)
        else:
            self._reply({"error": "The disk of the hub is full"}, 400)

    def _commit(self, body: bytes) -> None:
        for line in body.splitlines():
            item = json.loads(line)
            value = item["value"]
            if item["key"] == "file":
                self.server.files[value["path"]] = base64.b64decode(value["content"])
            elif item["key"] == "lfsFile":
                self.server.files[value["path"]] = self.server.blobs[value["oid"]]
        url = f"{self.server.url}/me/name/commit/1"
        self._reply({"commitUrl": url, "commitOid": "1" * 40, "pullRequestUrl": None})
