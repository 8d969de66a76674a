"""An HTTP server in a thread whose answers a test writes, request by request."""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Asked:
    """A request, and how many came before it."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes
    number: int


@dataclass
class Answered:
    """An answer; `length` is what its header claims where that is not its length."""

    body: bytes = b""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    length: int | None = None


@dataclass
class Scripted:
    """A running server.

    Attributes:
        url: its address.
        asked: its requests so far.
        connections: how many were opened.
        most: requests that were under way together.
    """

    url: str = ""
    asked: list[Asked] = field(default_factory=list)
    connections: int = 0
    most: int = 0
    busy: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)


@contextmanager
def scripted(
    answer: Callable[[Asked], Answered], seconds: float = 0.0, port: int = 0
) -> Iterator[Scripted]:
    """A server that answers so, after some seconds; port 0 is a free one."""
    state = Scripted()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def setup(self) -> None:
            super().setup()
            with state.lock:
                state.connections += 1

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            with state.lock:
                asked = Asked(self.command, self.path, self.headers, body, len(state.asked))
                state.asked.append(asked)
                state.busy += 1
                state.most = max(state.most, state.busy)
            time.sleep(seconds)
            given = answer(asked)
            with state.lock:
                state.busy -= 1
            self.send_response(given.status)
            for key, value in given.headers.items():
                self.send_header(key, value)
            length = len(given.body) if given.length is None else given.length
            self.send_header("Content-Length", str(length))
            self.end_headers()
            self.wfile.write(given.body)
            self.close_connection = given.length is not None

        do_GET = do_POST

        def log_message(self, *_: object) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    server.daemon_threads = True
    state.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
