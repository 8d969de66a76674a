"""A server of OpenAI's chat completions in its own process, well or badly behaved.

The model of a request names the behaviour; a number behind it says how often a request is treated
so before it is answered well (`busy-2`). `GET /counts` tells how often each model was asked, and
how many connections there were.
"""

import base64
import contextlib
import io
import json
import math
import re
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from PIL import Image

MODELS = ["right"]
REPLIES = {
    "prose": "I would say four out of five.",
    "high": '{"reason": "", "score": 6}',
    "edit": "Following Score (0-25): 20\nConsistency Score: 16\nNaturalness Score: 25\n"
    "Artifacts Score (0-25): 9",
    "unified": "Alignment Score (1-5): 4\nCoherence Score (1-5): 2.5\nStyle Score (1-5): 2.5",
}
asked: Counter[str] = Counter()
seen: Counter[bytes] = Counter()
last: dict[str, Any] = {}
connections = 0
lock = threading.Lock()


def vowels(text: str) -> int:
    """1 to 5, from what stands between the fences of a completion or chunk: its vowels."""
    fenced = re.findall(r"<(completion|chunk) \w+>\n(.*?)\n</\1 ", text, re.DOTALL)
    return 1 + sum(c in "aeiou" for c in fenced[-1][1] if fenced) % 5 if fenced else 3


class Chat(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def setup(self) -> None:
        global connections
        super().setup()
        with lock:
            connections += 1

    def do_GET(self) -> None:
        if self.path == "/counts":
            return self.answer(200, {"asked": asked, "connections": connections, "last": last})
        if not self.path.endswith("/v1/models"):
            return self.answer(404, {"detail": "Not Found"})
        return self.answer(200, {"object": "list", "data": [{"id": name} for name in MODELS]})

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        request = json.loads(body)
        name, _, times = request["model"].partition("-")
        with lock:
            asked[request["model"]] += 1
            seen[body] += 1
            last.clear()
            last.update(request)
        badly = not times or seen[body] <= int(times)
        (getattr(self, name, self.says) if badly else self.right)(request)

    def answer(self, status: int, content: Any, **headers: str) -> None:
        self.raw(status, json.dumps(content).encode(), **headers)

    def raw(self, status: int, body: bytes, length: int | None = None, **headers: str) -> None:
        self.send_response(status)
        for key, value in headers.items():
            self.send_header(key.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body) if length is None else length))
        self.end_headers()
        self.wfile.write(body)

    def say(self, content: str | None, **message: Any) -> None:
        choice = {"index": 0, "message": {"role": "assistant", "content": content, **message}}
        self.answer(200, {"object": "chat.completion", "choices": [choice]})

    def says(self, request: dict[str, Any]) -> None:
        self.say(REPLIES[request["model"].partition("-")[0]])

    def right(self, request: dict[str, Any]) -> None:
        content = request["messages"][-1]["content"]
        score = vowels("".join(part.get("text", "") for part in content))
        schema = request.get("response_format", {}).get("json_schema", {}).get("schema")
        if schema:
            allowed = schema["properties"]["score"]["enum"]
            score = allowed[(score - 1) % len(allowed)]
        time.sleep(0.01)
        self.say(json.dumps({"reason": "vowels", "score": score}))

    def colours(self, request: dict[str, Any]) -> None:
        """Yes or no: the question names the colour of the image's first pixel."""
        image, question = request["messages"][-1]["content"]
        data = base64.b64decode(image["image_url"]["url"].partition(",")[2])
        pixel = Image.open(io.BytesIO(data)).convert("RGB").getpixel((0, 0))
        named = {"red": (255, 0, 0), "blue": (0, 0, 255)}
        [words] = re.findall(r"<prompt \w+>\n(.*?)\n</prompt ", question["text"], re.DOTALL)
        score = int(any(name in words and pixel == colour for name, colour in named.items()))
        if request.get("logprobs"):
            return self.list_words({"Yes": 0.7 if score else 0.1, " yes": 0.1, "No": 0.1})
        self.say(json.dumps({"reason": "pixel", "score": score}))

    def list_words(self, probabilities: dict[str, float]) -> None:
        """The words that may come first."""
        listed = [{"token": word, "logprob": math.log(p)} for word, p in probabilities.items()]
        first = {"token": "Yes", "logprob": 0.0, "top_logprobs": listed}
        choice = {"message": {"content": "Yes"}, "logprobs": {"content": [first]}}
        self.answer(200, {"choices": [{**choice, "finish_reason": "length"}]})

    def voter(self, request: dict[str, Any]) -> None:
        """Scores by the seed; without a score where the completion says so and the seed is 1."""
        content = request["messages"][-1]["content"]
        words = "".join(part.get("text", "") for part in content)
        allowed = request["response_format"]["json_schema"]["schema"]["properties"]["score"]["enum"]
        if "stumble" in words and request["seed"] == 1:
            return self.say("hm")
        spread = 0 if "agree" in words else request["seed"]
        score = allowed[(allowed.index(0) if 0 in allowed else 1) + spread % 2]
        self.say(json.dumps({"reason": "", "score": score}))

    def busy(self, request: dict[str, Any]) -> None:
        self.answer(429, {"error": "slowly"}, Retry_After="0")

    def patient(self, request: dict[str, Any]) -> None:
        self.answer(429, {"error": "slowly"}, Retry_After="1")

    def hours(self, request: dict[str, Any]) -> None:
        self.answer(503, {"error": "come back tonight"}, Retry_After="36000")

    def broken(self, request: dict[str, Any]) -> None:
        self.answer(500, {"error": "oh"})

    def full(self, request: dict[str, Any]) -> None:
        """As vLLM answers above `--max-num-queued-reqs`."""
        self.answer(503, {"error": "the queue is full"})

    def limit(self, request: dict[str, Any]) -> None:
        """The beginning of an object, or none where all went into thoughts."""
        message = {"content": None if "b" in str(request["messages"][-1]) else '{"reason": "'}
        choice = {"message": message, "finish_reason": "length"}
        self.answer(200, {"choices": [choice]})

    def denied(self, request: dict[str, Any]) -> None:
        self.answer(401, {"error": f"wrong key {self.headers['Authorization']}"})

    def garbage(self, request: dict[str, Any]) -> None:
        self.raw(200, b"<html>\xff\x00 502 bad gateway")

    def refusal(self, request: dict[str, Any]) -> None:
        self.say(None, refusal="I cannot judge this.")

    def empty(self, request: dict[str, Any]) -> None:
        self.answer(200, {"object": "chat.completion", "choices": []})

    def half(self, request: dict[str, Any]) -> None:
        """Half a body, then the end of what this side says, while it goes on listening."""
        self.raw(200, b'{"choices": [{"message"', length=400)
        self.wfile.flush()
        self.connection.shutdown(socket.SHUT_WR)
        self.close_connection = True
        time.sleep(0.3)

    def silent(self, request: dict[str, Any]) -> None:
        """Nothing at all, and the end."""
        self.connection.shutdown(socket.SHUT_RDWR)
        self.close_connection = True

    def leaving(self, request: dict[str, Any]) -> None:
        """A good answer on a connection that closes afterwards without having said so."""
        self.right(request)
        self.close_connection = True

    def slow(self, request: dict[str, Any]) -> None:
        time.sleep(20)
        self.right(request)

    def drip(self, request: dict[str, Any]) -> None:
        """A byte every while, so that no single wait is long."""
        self.close_connection = True
        with contextlib.suppress(OSError):
            for byte in b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n" + b"X: y\r\n" * 99:
                self.wfile.write(bytes([byte]))
                time.sleep(0.05)

    def log_message(self, *_: Any) -> None:
        """Nothing."""


@contextlib.contextmanager
def judge_server() -> Iterator[str]:
    """The address of a server that runs meanwhile."""
    command = [sys.executable, str(Path(__file__))]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield f"http://127.0.0.1:{int(process.stdout.readline())}/v1"
    finally:
        process.kill()
        process.wait()


def counts(url: str) -> dict[str, Any]:
    """What the server at an address has counted."""
    with urllib.request.urlopen(url.removesuffix("/v1") + "/counts") as response:
        return json.load(response)


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", 0), Chat)
    server.daemon_threads = True
    sys.stdout.write(f"{server.server_address[1]}\n")
    sys.stdout.flush()
    server.serve_forever()
