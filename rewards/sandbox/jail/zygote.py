"""The process that enters the isolation once and forks a tester for every job.

It never reads a job itself, because every later candidate inherits its memory.
"""

import builtins
import contextlib
import gc
import importlib
import json
import os
import select
import signal
import sys
import traceback
from typing import Any

from . import kernel, seccomp
from .limits import JobLimits, be_counted_apart
from .namespaces import enter_namespaces
from .tester import run_job
from .wire import Gone, receive, send

_WARM = (
    "bisect cmath collections copy datetime decimal fractions functools heapq itertools json"
    " math operator random re statistics string textwrap traceback typing"
)
"""Modules that solutions often import, loaded once and shared by all forks."""


def main(settings: str) -> None:
    """Serve jobs from standard input until it closes; verdicts go to standard output."""
    limits = JobLimits(**json.loads(settings))
    # Verdicts have an own descriptor: a candidate may control what tests print.
    replies, null = os.dup(1), os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for name in _WARM.split():
        importlib.import_module(name)
    # Without `site`, which would look for packages, Python has no `exit`; programs use it.
    builtins.__dict__.update(exit=sys.exit, quit=sys.exit)
    try:
        _isolate(limits)
    except OSError as error:
        return send(replies, {"failure": str(error)})
    gc.collect()
    gc.freeze()
    poll = select.poll()
    poll.register(0, select.POLLIN)
    while any(event & select.POLLIN for _, event in poll.poll()):
        send(replies, _run_in_tester(limits, null))


def _isolate(limits: JobLimits) -> None:
    be_counted_apart()
    seccomp.check_support()
    if limits.isolation == "full":
        enter_namespaces(limits.readable)
        kernel.prctl(kernel.PR_SET_PDEATHSIG, 9)  # with the process that waits for this one
    kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER, 1)
    kernel.prctl(kernel.PR_SET_DUMPABLE, 0)


def _run_in_tester(limits: JobLimits, null: int) -> dict[str, Any]:
    reply = os.memfd_create("reply")
    tester = os.fork()
    if tester == 0:
        try:
            kernel.prctl(kernel.PR_SET_PDEATHSIG, 9)
            run_job(limits, null, reply)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(tester, 0)[1])
    with contextlib.suppress(ChildProcessError):
        # The candidate ends with its tester, and becomes a child of this process.
        while True:
            os.wait()
    os.lseek(reply, 0, os.SEEK_SET)
    try:
        return receive(reply)
    except Gone:
        late = code == -signal.SIGALRM
        reason = "out of time" if late else f"the tests were stopped (exit status {code})"
        return {"passed": False, "reason": reason}
    finally:
        os.close(reply)
