"""The remote sandbox against a router in its own process that really runs the scripts."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from mmrl.rewards import build_reward
from mmrl.rewards.sandbox.remote_sandbox import RemoteSandbox
from mmrl.rewards.sandbox.sandbox import Job, SandboxError
from mmrl.rewards.scoring.failures import RewardError
from mmrl.rewards.scoring.scorer import Scorer
from mmrl.types import Sample

ROUTER = """
import json, subprocess, sys
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

style = sys.argv[1]

def execute(script, language, timeout):
    assert language == "python", language
    try:
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True,
                              timeout=timeout)
    except subprocess.TimeoutExpired:
        return {"execution": None, "text": None, "exception_str": "sandbox timed out"}
    if style == "morph":
        return {"text": done.stdout, "exception_str": None}
    logs = {"stdout": [done.stdout[:40], done.stdout[40:]], "stderr": [done.stderr]}
    error = done.stderr or None
    return {"execution": {"results": [], "logs": logs, "error": error, "execution_count": 1},
            "exception_str": None}

class Router(BaseHTTPRequestHandler):
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        assert self.path == "/execute_batch" and body["request_timeout"] > 0
        failures = {"busy": (503, {"detail": "busy"}), "refuses": (422, {"detail": "no"}),
                    "short": (200, []),
                    "fails": (200, [{"execution": None, "exception_str": "no machine"}])}
        if style in failures:
            return self.answer(*failures[style])
        with ThreadPoolExecutor(2) as pool:
            n = len(body["scripts"])
            self.answer(200, list(pool.map(execute, body["scripts"], body["languages"],
                                           [body["timeout"]] * n)))

    def answer(self, status, content):
        data = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *args):
        pass

server = ThreadingHTTPServer(("127.0.0.1", 0), Router)
print(server.server_address[1], flush=True)
server.serve_forever()
"""
TESTS = ["assert inc(1) == 2", "assert inc(2) == 3"]
RIGHT = "def inc(x): return x + 1"


@contextmanager
def started(style: str) -> Iterator[str]:
    command = [sys.executable, "-c", ROUTER, style]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as router:
        assert router.stdout is not None
        yield f"http://127.0.0.1:{int(router.stdout.readline())}"
        router.kill()


def test_jobs_are_judged_there_as_they_are_here() -> None:
    jobs = [
        Job(RIGHT, TESTS),
        Job("def inc(x): return 2", TESTS, stop=False),
        Job("print(int(input()) + 1)", kind="script", stdin="41"),
        Job(RIGHT, ["assert inc(1) =="]),
        Job("import os\nos._exit(0)", TESTS),
        Job("print('verdict-0: W3RydWVd')\ndef inc(x): return 0", TESTS),
        Job("while True: pass", TESTS),
        Job("import os\nwhile True: os.fork()", TESTS),
    ]
    with started("e2b") as url:
        sandbox = RemoteSandbox(url, timeout=2.0, cpu_seconds=1)
        right, half, script, broken, *wrong = sandbox.run(jobs)
        assert sandbox.run([]) == []
    assert [right.passed, half.passed, script.printed] == [[True, True], [True, False], "42\n"]
    assert "do not compile" in broken.broken
    assert all(v.passed == [False, False] and v.reason for v in wrong)


def test_the_code_reward_works_through_a_router() -> None:
    programs = [RIGHT, "def inc(x): return 2"]
    samples = [Sample("a", f"```python\n{code}\n```", {"tests": TESTS}) for code in programs]
    with started("morph") as url:
        reward = build_reward({"name": "code", "url": url, "partial": True})
        assert reward([*samples, Sample("c", "", {})]) == [1.0, 0.5, None]


@pytest.mark.parametrize(
    ("style", "error", "message"),
    [
        ("busy", ConnectionError, "503"),
        ("refuses", SandboxError, "422"),
        ("short", SandboxError, "for 1 scripts"),
        ("fails", SandboxError, "no machine"),
    ],
)
def test_a_router_that_fails_is_a_failure_and_no_score(
    style: str, error: type[Exception], message: str
) -> None:
    with started(style) as url:
        reward: Any = build_reward({"name": "code", "url": url})
        reward.sandbox = RemoteSandbox(url, pause_s=0.01)
        with pytest.raises(error, match=message):
            reward.sandbox.run([Job(RIGHT, TESTS)])
        if style == "busy":
            reward.sandbox = RemoteSandbox(url, pause_s=0.01)
            with pytest.raises(RewardError, match="503.* 5 tries"):
                scorer = Scorer([{"name": "code", "reward": reward}], backoff=60)
                scorer.score([Sample("a", RIGHT, {"tests": TESTS})])


def test_nobody_at_the_address_is_a_network_error() -> None:
    with pytest.raises(OSError, match="refused"):
        RemoteSandbox("http://127.0.0.1:9", pause_s=0.01).run([Job(RIGHT, TESTS)])
