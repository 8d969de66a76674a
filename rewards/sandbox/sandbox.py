"""The code sandbox: runs code that a model wrote, and reports whether it passed its tests.

    Sandbox().run([Job("def add(a, b): return a + b", tests=["assert add(1, 2) == 3"])])

Every job has its own processes (see `rewards/sandbox/jail/__init__.py`). Levels of `isolation`:

full     namespaces of users, processes, mounts, network and IPC that contain only Python's standard
         library; and all limits of the next line.
process  no namespaces, for machines that forbid them: Landlock denies all files but the standard
         library, a filter denies processes, programs, signals and sockets.

Nothing can be written. Both limit time by the clock, memory, threads, open files and output.
Environment, open files and session are separate. If a machine cannot provide the level, the sandbox
fails and never falls back to a weaker one. Not covered: kernel, caches and timing are shared, and a
solution that guesses the expected results passes its tests.
"""

import contextlib
import json
import logging
import os
import queue
import select
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from mmrl.rewards.sandbox.jail import BOOT
from mmrl.rewards.sandbox.jail.wire import Gone, receive, send

logger = logging.getLogger(__name__)

JAIL = Path(__file__).with_name("jail")
ENVIRONMENT = {"PYTHONHASHSEED": "0", "PYTHONUTF8": "1", "PYTHONDONTWRITEBYTECODE": "1"}
"""With a fixed hash seed the order of a set, and with it a verdict, is the same in every run."""
START_SECONDS = 80.0
_TRIAL = """import _thread, time
_thread.stack_size(1 << 16)
def start(): return [_thread.start_new_thread(time.sleep, (99,)) for _ in range(500)]
"""
_LIMITED = """try: start()
except RuntimeError: pass
else: assert False, 'nothing limits its threads, which for root needs CAP_SETUID'
"""


class SandboxError(RuntimeError):
    """The sandbox failed for a reason that is not the code it ran."""


class IsolationError(SandboxError):
    """This machine cannot provide the isolation level."""


@dataclass(frozen=True)
class Job:
    """Code and what to do with it.

    Attributes:
        code: the code of a model.
        tests: pieces of code with assertions, or `{"input": [arguments], "output": result}` for a
            call of `entry_point`. The first that fails ends the job.
        setup: code that runs before the tests, and before the code if it can.
        entry_point: the function under test; found in the assertions if empty. A test that defines
            `check` has it called with this function, as HumanEval's tests are. Calls with results
            may also name a method, `Solution.add`, of an instance made for them.
        stdin: what the code reads, to run it as a script; None runs the tests.
    """

    code: str
    tests: Sequence[str | dict[str, Any]] = ()
    setup: str = ""
    entry_point: str = ""
    stdin: str | None = None


@dataclass(frozen=True)
class JobVerdict:
    """The result of a job: whether all tests passed, or a script ended well; the `reason` why not;
    what a script `printed`; and `broken`, why the tests cannot be run, whatever the code (empty if
    they can)."""

    passed: bool
    reason: str = ""
    printed: str = ""
    broken: str = ""


class Sandbox:
    """Runs jobs on this machine, `workers` at the same time, with the isolation of the module.
    `timeout`: wall-clock seconds for loading the code and for each test; `memory_mb`: address space
    of one job; `output_kb`: what one may print, and return from one call. Raises IsolationError:
    the machine cannot provide this level; the message says what is missing."""

    def __init__(
        self,
        isolation: str = "full",
        timeout: float = 10.0,
        memory_mb: int = 1024,
        output_kb: int = 1024,
        workers: int = 2,
    ) -> None:
        self.isolation, self.timeout, self.workers = isolation, timeout, workers
        limits = {"timeout": timeout, "memory_mb": memory_mb, "output_kb": output_kb}
        self._limits = json.dumps({"isolation": isolation, **limits, "readable": library_paths()})
        self._free: queue.SimpleQueue[subprocess.Popen[bytes] | None] = queue.SimpleQueue()
        for _ in range(workers):
            self._free.put(None)
        self._try()

    def run(self, jobs: Sequence[Job]) -> list[JobVerdict]:
        """Run jobs, several at a time, and return their verdicts in order. Raises SandboxError: the
        sandbox itself failed."""
        with ThreadPoolExecutor(self.workers) as pool:
            return list(pool.map(self._run, jobs))

    def close(self) -> None:
        """End the processes; the next job starts others."""
        for _ in range(self.workers):
            _end(self._free.get())
            self._free.put(None)

    def _run(self, job: Job) -> JobVerdict:
        zygote = self._free.get()
        try:
            if zygote is None or zygote.poll() is not None:
                _end(zygote)
                zygote = self._start_zygote()
            assert zygote.stdin is not None and zygote.stdout is not None
            with contextlib.suppress(Gone):  # one that cannot isolate says so and ends
                send(zygote.stdin.fileno(), asdict(job))
            seconds = self.timeout * (1 + len(job.tests)) + START_SECONDS
            if not select.select([zygote.stdout], [], [], seconds)[0]:
                raise Gone("out of time")
            reply = receive(zygote.stdout.fileno())
            if "failure" in reply:
                raise SandboxError(f"the sandbox failed: {reply['failure']}")
            return JobVerdict(**reply)
        except Gone as error:
            _end(zygote)
            zygote = None
            raise SandboxError(f"the sandbox failed: {error}; see its messages") from error
        finally:
            self._free.put(zygote)

    def _try(self) -> None:
        """Raise an IsolationError where this isolation does not work here."""
        try:
            verdict = self._run(Job(_TRIAL, [_LIMITED]))
            problem = verdict.broken or verdict.reason
        except SandboxError as error:
            problem = str(error)
        is_full = self.isolation == "full"
        if not problem:
            level = logging.INFO if is_full else logging.WARNING
            return logger.log(level, "code runs at isolation: %s", self.isolation)
        self.close()
        other = "isolation: process (no namespaces), " if is_full else ""
        raise IsolationError(
            f"isolation: {self.isolation} is not possible on this machine: {problem}. Use "
            f"{other}a machine or container that allows it (full: unprivileged user namespaces and "
            "Linux 5.12; process: Landlock, Linux 5.13; both: x86_64 or aarch64), or serve the "
            "reward from one that does (mode: client)."
        )

    def _start_zygote(self) -> subprocess.Popen[bytes]:
        python = os.path.realpath(sys.executable)
        return subprocess.Popen(
            [python, "-s", "-S", "-c", BOOT, str(JAIL.parent), self._limits],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd="/",
            env=ENVIRONMENT,
            bufsize=0,
            start_new_session=True,
        )


def library_paths() -> list[str]:
    """Files and folders of the standard library: all that sandboxed code may read."""
    own = [os.path.dirname(os.__file__), "/etc/ld.so.cache"]
    own += [os.path.join(prefix, "lib") for prefix in (sys.base_prefix, sys.base_exec_prefix)]
    shared = ["/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib"]
    found = {os.path.abspath(path) for path in own + shared if os.path.exists(path)}
    return sorted(p for p in found if not any(p.startswith(f"{other}/") for other in found))


def _end(zygote: subprocess.Popen[bytes] | None) -> None:
    if zygote is not None:
        zygote.kill()
        zygote.communicate()
