"""The remote sandbox against a router in its own process that really runs the scripts."""

import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
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
    def do_GET(self):
        self.answer(200, {"status": "ok"})

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        assert self.path == "/execute_batch" and body["request_timeout"] > 0
        if style == "busy":
            return self.answer(503, {"detail": "busy"})
        if style == "refuses":
            return self.answer(422, {"detail": "no"})
        if style == "short":
            return self.answer(200, [])
        if style == "fails":
            return self.answer(200, [{"execution": None, "exception_str": "no machine"}])
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


def started(style: str) -> tuple[subprocess.Popen[str], str]:
    command = [sys.executable, "-c", ROUTER, style]
    router = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert router.stdout is not None
    return router, f"http://127.0.0.1:{int(router.stdout.readline())}"


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    router, url = started("e2b")
    yield url
    router.kill()
    router.wait()


def test_jobs_are_judged_there_as_they_are_here(url: str) -> None:
    with urllib.request.urlopen(f"{url}/health") as response:
        assert json.load(response) == {"status": "ok"}
    sandbox = RemoteSandbox(url, timeout=2.0, cpu_seconds=1)
    jobs = [
        Job(RIGHT, TESTS),
        Job("def inc(x): return 2", TESTS, stop=False),
        Job("print(int(input()) + 1)", kind="script", stdin="41"),
        Job("import os\nos._exit(0)", TESTS),
        Job("print('verdict-0: W3RydWVd')\ndef inc(x): return 0", TESTS),
        Job("while True: pass", TESTS),
        Job("import os\nwhile True: os.fork()", TESTS),
    ]
    verdicts = sandbox.run(jobs)
    assert [v.passed for v in verdicts[:2]] == [[True, True], [True, False]]
    assert verdicts[2].printed == "42\n"
    assert all(v.passed == [False, False] and v.reason for v in verdicts[3:])
    assert sandbox.run([]) == []


def test_tests_that_cannot_be_run_are_no_zero_and_leave_the_other_jobs_alone(url: str) -> None:
    jobs = [Job(RIGHT, [test]) for test in ("assert inc(1) ==", "assert inc(1) == 2")]
    broken, right = RemoteSandbox(url).run(jobs)
    assert "do not compile" in broken.broken and right.passed == [True]


@pytest.mark.parametrize("style", ["e2b", "morph"])
def test_the_code_reward_works_through_a_router(style: str) -> None:
    router, url = started(style)
    reward = build_reward({"name": "code", "url": url, "partial": True})
    wrong = "```python\ndef inc(x): return 2\n```"
    samples = [
        Sample("a", f"```python\n{RIGHT}\n```", {"tests": TESTS}),
        Sample("b", wrong, {"tests": TESTS}),
        Sample("c", "", {}),
    ]
    assert reward(samples) == [1.0, 0.5, None]
    router.kill()
    router.wait()


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
    router, url = started(style)
    try:
        with pytest.raises(error, match=message):
            RemoteSandbox(url, pause_s=0.01).run([Job(RIGHT, TESTS)])
        if style == "busy":
            reward: Any = build_reward({"name": "code", "url": url})
            reward.sandbox = RemoteSandbox(url, pause_s=0.01)
            with pytest.raises(RewardError, match="503.* 5 tries"):
                scorer = Scorer([{"name": "code", "reward": reward}], backoff=60)
                scorer.score([Sample("a", RIGHT, {"tests": TESTS})])
    finally:
        router.kill()
        router.wait()


def test_nobody_at_the_address_is_a_network_error() -> None:
    with pytest.raises(OSError, match="refused"):
        RemoteSandbox("http://127.0.0.1:9", pause_s=0.01).run([Job(RIGHT, TESTS)])
