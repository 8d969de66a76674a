"""Limits of a candidate and its tester, and how a process applies them."""

import bisect
import contextlib
import os
import resource
import threading
from dataclasses import dataclass

from . import kernel, landlock, seccomp

THREADS, FILES = 64, 64
_FIRST_USER = 0x70000000
"""The first of user ids that nobody is given."""


@dataclass(frozen=True)
class JobLimits:
    """Limits of one candidate.

    Attributes:
        level: `bwrap` or `namespaces` (both isolate fully), `process`, or `bare` (whatever the
            machine allows, for disposable ones).
        timeout: wall-clock seconds for loading the code and for each test.
        cpu_seconds: processor time of all tests of one job together.
        memory_mb: address space.
        output_kb: what it may write to stdout, to files, and in one answer.
        readable: files and folders of the standard library and what it loads.
    """

    level: str
    timeout: float
    cpu_seconds: int
    memory_mb: int
    output_kb: int
    readable: tuple[str, ...]

    @property
    def is_alone(self) -> bool:
        """Whether it has namespaces, and with them a folder to write in."""
        return self.level in ("bwrap", "namespaces")


def restrain_candidate(limits: JobLimits) -> None:
    """Apply all limits to this process permanently, right before the candidate's code.

    Raises:
        OSError: the kernel refuses one; ignored at level `bare`.
    """
    optional = contextlib.suppress(OSError) if limits.level == "bare" else contextlib.nullcontext()
    with optional:
        kernel.drop_capabilities()
    is_counted_apart = limits.is_alone or os.getuid() >= _FIRST_USER
    _set(resource.RLIMIT_NPROC, THREADS + (0 if is_counted_apart else _count_tasks()))
    _set(resource.RLIMIT_CPU, limits.cpu_seconds, limits.cpu_seconds + 1)
    _set(resource.RLIMIT_AS, limits.memory_mb << 20)
    _set(resource.RLIMIT_FSIZE, limits.output_kb << 10)
    _set(resource.RLIMIT_NOFILE, FILES)
    _set(resource.RLIMIT_CORE, 0)
    _set(resource.RLIMIT_MEMLOCK, 0)
    kernel.prctl(kernel.PR_SET_DUMPABLE, 0)
    kernel.prctl(kernel.PR_SET_PDEATHSIG, 9)
    if not limits.is_alone:
        with optional:
            landlock.restrict(limits.readable)
    with optional:
        seccomp.confine(is_writing=limits.is_alone)


def restrain_tester(limits: JobLimits) -> None:
    """Drop rights that a tester does not need after it has started its candidate."""
    _set(resource.RLIMIT_AS, limits.memory_mb << 20)
    _set(resource.RLIMIT_CORE, 0)
    if limits.level != "bare":
        kernel.drop_capabilities()
        seccomp.confine()


def be_counted_apart() -> None:
    """Have the kernel count root's tasks here as another user's, because root's have no limit. Its
    files stay readable: that depends on the effective user. Containers that lack this user often
    run root as an ordinary user of the machine."""
    if os.getuid() == 0:
        with contextlib.suppress(OSError):
            os.setresuid(_FIRST_USER + os.getpid(), 0, 0)


def _count_tasks() -> int:
    """How many tasks this user has, by the lowest limit with which one more starts: they may be in
    other namespaces."""
    hard = resource.getrlimit(resource.RLIMIT_NPROC)[1]

    def starts(limit: int) -> bool:
        resource.setrlimit(resource.RLIMIT_NPROC, (limit, hard))
        task = threading.Thread()
        try:
            task.start()
        except RuntimeError:
            return False
        task.join()
        return True

    threading.stack_size(1 << 16)
    tasks = bisect.bisect_left(range(min(hard % (1 << 64), 1 << 22)), True, key=starts)
    threading.stack_size(0)
    return tasks


def _set(kind: int, soft: int, hard: int | None = None) -> None:
    ceiling = resource.getrlimit(kind)[1]
    wanted = soft if hard is None else hard
    hard = wanted if ceiling == resource.RLIM_INFINITY else min(wanted, ceiling)
    resource.setrlimit(kind, (min(soft, hard), hard))
