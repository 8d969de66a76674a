"""The code sandbox on another machine, behind a router that runs scripts.

    POST {url}/execute_batch  {"scripts": [str], "languages": ["python", …],
                               "timeout": int, "request_timeout": int}
    → one {"execution": {"logs": {"stdout": [str]}, …}, "exception_str": str | null} per script,
      as the E2B router of the open-r1 line answers, or {"text": str, "exception_str": …} (Morph).

A script contains the files of `rewards/sandbox/jail` and runs the job in its own processes, so the
tests are judged as on this machine: by comparing values, apart from the candidate. Isolation from
the rest of the remote machine is up to the router; within the script, every layer that works there
is applied. A candidate that escapes its process can read the script, its tests and the mark of its
verdict: use a fresh machine per script, as both routers do.
"""

import base64
import json
import secrets
import zlib
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from mmrl.rewards.http.errors import Refused
from mmrl.rewards.http.service import Deadline, Service
from mmrl.rewards.sandbox.jail.tester import GRACE
from mmrl.rewards.sandbox.sandbox import (
    BOOTED,
    ENVIRONMENT,
    JAIL,
    Job,
    JobVerdict,
    SandboxError,
    read_verdict,
)

START_SECONDS = 15
"""Seconds for starting a machine and unpacking, in addition to the time of a job."""

_SCRIPT = """
import base64, json, os, struct, subprocess, sys, sysconfig, tempfile, zlib
files, job, limits, booted, environment = json.loads(zlib.decompress(base64.b64decode({packed!r})))
readable = [sysconfig.get_path("stdlib"), os.path.join(sys.base_prefix, "lib"),
            "/etc/ld.so.cache", "/lib", "/lib64", "/usr/lib", "/usr/lib64"]
limits["readable"] = list(filter(os.path.exists, readable))
with tempfile.TemporaryDirectory() as folder:
    os.mkdir(folder + "/jail")
    for name, text in files.items():
        with open(folder + "/jail/" + name, "w", encoding="utf-8") as file:
            file.write(text)
    body = json.dumps(job).encode()
    done = subprocess.run(
        [sys.executable, *booted, folder, "bare", json.dumps(limits)], cwd="/", env=environment,
        input=struct.pack("<I", len(body)) + body, stdout=subprocess.PIPE)
print({mark!r} + base64.b64encode(done.stdout[4:]).decode())
"""


class RemoteSandbox:
    """Runs jobs through a router.

    Args:
        url: where `/execute_batch` is, for example `http://127.0.0.1:8000`.
        timeout: wall-clock seconds for loading the code and for each test.
        cpu_seconds: processor time of one job, all its tests together.
        memory_mb: address space of one job.
        output_kb: what one job may print and return from one call.
        http_timeout: seconds to wait for the answer to one batch, all tries together.
        pause_s: seconds before the second try, see `mmrl.rewards.http.service`.

    Raises:
        ValueError: the URL is not valid.
    """

    def __init__(
        self,
        url: str,
        timeout: float = 10.0,
        cpu_seconds: int = 10,
        memory_mb: int = 1024,
        output_kb: int = 1024,
        http_timeout: float = 600.0,
        pause_s: float = 0.5,
    ) -> None:
        self._router = Service([url], timeout_s=http_timeout, pause_s=pause_s)
        self.url, self.timeout, self.http_timeout = url, timeout, http_timeout
        self._limits = {"timeout": timeout, "cpu_seconds": cpu_seconds, "memory_mb": memory_mb}
        self._limits["output_kb"] = output_kb

    def run(self, jobs: Sequence[Job]) -> list[JobVerdict]:
        """Run jobs in one batch and return their verdicts in order.

        Raises:
            Unreachable: the router cannot be reached or stays overloaded.
            SandboxError: it refuses, or its answer has no verdict for a job.
        """
        if not jobs:
            return []
        marks = [f"verdict-{secrets.token_hex(16)}:" for _ in jobs]
        scripts = [
            write_script(job, self._limits, mark) for job, mark in zip(jobs, marks, strict=True)
        ]
        rounds = 1 + max(len(job.tests) for job in jobs)
        seconds = int(self.timeout * rounds + GRACE + START_SECONDS)
        body = {"scripts": scripts, "languages": ["python"] * len(jobs)}
        body |= {"timeout": seconds, "request_timeout": seconds}
        try:
            answers = self._router.post("/execute_batch", body, Deadline(self.http_timeout))
        except Refused as error:
            raise SandboxError(str(error)) from error
        if not isinstance(answers, list) or len(answers) != len(jobs):
            raise SandboxError(f"{self.url} sent {str(answers)[:200]!r} for {len(jobs)} scripts")
        cases = zip(answers, marks, jobs, strict=True)
        return [read_verdict(_reply(answer, mark), job) for answer, mark, job in cases]


def write_script(job: Job, limits: dict[str, Any], mark: str) -> str:
    """A program that runs a job and prints its verdict after `mark`."""
    files = {path.name: path.read_text(encoding="utf-8") for path in JAIL.glob("*.py")}
    content = json.dumps([files, asdict(job), limits, BOOTED, ENVIRONMENT])
    packed = base64.b64encode(zlib.compress(content.encode())).decode()
    return _SCRIPT.format(packed=packed, mark=mark)


def _reply(answer: Any, mark: str) -> dict[str, Any]:
    answer = answer if isinstance(answer, dict) else {}
    execution = answer.get("execution") or {}
    printed = answer.get("text") or "".join(execution.get("logs", {}).get("stdout", []))
    found = [line for line in printed.splitlines() if line.startswith(mark)]
    if answer.get("exception_str") or not found or found[-1] == mark:
        reason = answer.get("exception_str") or execution.get("error") or "it printed no verdict"
        raise SandboxError(f"the remote sandbox ran no tests: {str(reason)[:300]}")
    return json.loads(base64.b64decode(found[-1].removeprefix(mark)))
