"""The process that enters the isolation once and forks a tester for every job.

It never reads a job itself, because every later candidate inherits its memory.
"""

import builtins
import gc
import importlib
import json
import os
import platform
import select
import signal
import sys
from typing import NoReturn

from . import kernel, landlock, seccomp
from .limits import JobLimits, be_counted_apart
from .namespaces import enter_namespaces
from .tester import run_job
from .transfer import send

_WARM = (
    "bisect cmath collections copy datetime decimal fractions functools heapq itertools json"
    " math operator random re statistics string textwrap traceback typing"
)
WARM = tuple(_WARM.split())
"""Modules that solutions often import, loaded once and shared by all forks."""


def main(level: str, limits: str) -> None:
    """Serve jobs from standard input until it closes; verdicts go to standard output."""
    settings = JobLimits(level=level, **json.loads(limits))
    be_counted_apart()
    replies = _set_replies_aside()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for name in WARM:
        importlib.import_module(name)
    # Without `site`, which would look for packages, Python has no `exit`; programs use it.
    builtins.__dict__.update(exit=sys.exit, quit=sys.exit)
    if level == "bare":
        run_job(settings, 0, replies)
        return
    try:
        _isolate(settings)
    except OSError as error:
        send(replies, {"refused": str(error)})
        return
    gc.collect()
    gc.freeze()
    send(replies, {"ready": os.getpid()})
    while _job_waits():
        _fork_tester(settings, replies)


def _set_replies_aside() -> int:
    """A descriptor for verdicts alone: a candidate may control what tests print."""
    replies, null = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.close(null)
    return replies


def _isolate(settings: JobLimits) -> None:
    if not seccomp.is_supported():
        raise OSError(f"no system call filter for {sys.platform} on {platform.machine()}")
    if settings.level == "full":
        enter_namespaces(settings.readable)
    elif not landlock.read_version():
        raise OSError("this kernel has no Landlock to close the file system with")
    kernel.prctl(kernel.PR_SET_DUMPABLE, 0)


def _job_waits() -> bool:
    poll = select.poll()
    poll.register(0, select.POLLIN)
    return any(event & select.POLLIN for _, event in poll.poll())


def _fork_tester(settings: JobLimits, replies: int) -> None:
    pid = os.fork()
    if pid == 0:
        _be_tester(settings, replies)
    while True:
        ended, status = os.wait()
        if ended == pid:
            break
    if status:
        code = os.waitstatus_to_exitcode(status)
        send(replies, {"passed": [False], "reason": f"the tests were stopped (exit status {code})"})


def _be_tester(settings: JobLimits, replies: int) -> NoReturn:
    status = 1
    try:
        run_job(settings, 0, replies)
        status = 0
    finally:
        os._exit(status)
