"""A reward server in a process of its own, watched from outside."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
WATCHED = """
import runpy, sys
prelude, touched = sys.argv[1], open(sys.argv[2], "a", buffering=1)
sys.argv[:] = ["mmrl.rewards.server", *sys.argv[3:]]
exec(prelude)
events = {"open", "os.listdir", "os.scandir", "socket.connect", "socket.getaddrinfo",
          "subprocess.Popen", "os.exec", "os.posix_spawn", "os.system"}
sys.addaudithook(lambda event, args: event in events and touched.write(f"{event} {args[0]!r}\\n"))
runpy.run_module("mmrl.rewards.server", run_name="__main__", alter_sys=True)
"""
"""The server; the files and addresses it turns to are written down."""


class Server:
    """A running server on a free port.

    Args:
        folder: for its log and for `touched`, what it turned to.
        arguments: of the command line.
        environment: added to that of this process.
        prelude: Python to run first.
    """

    def __init__(
        self,
        folder: Path,
        *arguments: str,
        environment: Mapping[str, str] | None = None,
        prelude: str = "",
    ) -> None:
        self.log, self._touched = folder / "log", folder / "touched"
        command = [sys.executable, "-c", WATCHED, prelude, str(self._touched), *arguments, "port=0"]
        own = {"PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1", **(environment or {})}
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                command, cwd=ROOT, stderr=log, env={**os.environ, **own}
            )
        self.port = self._port()

    def _port(self) -> int:
        deadline = time.monotonic() + 300
        while time.monotonic() < deadline and self.process.poll() is None:
            for line in self.lines():
                if line["message"] == "listening":
                    return int(line["url"].rpartition(":")[2])
            time.sleep(0.05)
        raise RuntimeError(self.log.read_text())

    def lines(self) -> list[dict[str, Any]]:
        """The log so far; every line of it is a JSON object."""
        text = self.log.read_text()
        return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]

    def touched(self) -> list[str]:
        """What it turned to so far, without what tells it about its own process."""
        lines = self._touched.read_text().splitlines()
        return [line for line in lines if "'/proc/" not in line]

    def loaded(self) -> None:
        """Wait until every reward is loaded."""
        deadline = time.monotonic() + 300
        while time.monotonic() < deadline:
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
            connection.request("GET", "/v1/health")
            health = json.load(connection.getresponse())
            connection.close()
            if health["status"] == "ok":
                return
            if health["status"] == "failed":
                raise RuntimeError(health)
            time.sleep(0.05)
        raise TimeoutError("it does not load")

    def metric(self, name: str, token: str = "", **labels: str) -> float:
        """A value of `/metrics`, summed over the labels that are not given."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request("GET", "/metrics", headers={"Authorization": f"Bearer {token}"})
        text = connection.getresponse().read().decode()
        connection.close()
        wanted = [f'{key}="{value}"' for key, value in labels.items()]
        rows = [line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#")]
        return sum(
            float(value)
            for key, value in rows
            if key.partition("{")[0] == name and all(each in key for each in wanted)
        )

    def exchange(self, raw: bytes, timeout: float = 30.0) -> tuple[int, bytes] | None:
        """Send bytes as they are, then nothing; status and body, or None without an answer."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=timeout) as connection:
            with suppress(ConnectionError):  # refused before all is sent; the answer says why
                connection.sendall(raw)
            response = http.client.HTTPResponse(connection)
            try:
                response.begin()
                return response.status, response.read()
            except (http.client.HTTPException, ConnectionError):
                return None

    def stop(self) -> int:
        """Ask it to end; its exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=60)

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
