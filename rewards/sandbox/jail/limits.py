"""Limits of a candidate and its tester, and how a process applies them."""

import bisect
import contextlib
import os
import resource
import struct
import threading
from collections.abc import Iterable
from dataclasses import dataclass

from . import kernel, seccomp

THREADS, FILES = 64, 64
_FIRST_USER = 0x70000000
"""The first of user ids that nobody is given."""
_CREATE, _ADD, _RESTRICT = 444, 445, 446
_READ_FILE, _READ_DIR = 1 << 2, 1 << 3
_RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15}
"""Number of access rights by version of Landlock; 16 from version 5."""


@dataclass(frozen=True)
class JobLimits:
    """Limits of one candidate, those of a `Sandbox`; `readable` are the files and folders of the
    standard library and what it loads."""

    isolation: str
    timeout: float
    memory_mb: int
    output_kb: int
    readable: tuple[str, ...]


def restrain_candidate(limits: JobLimits) -> None:
    """Apply all limits to this process permanently, right before the candidate's code. Raises
    OSError: the kernel refuses one."""
    is_full = limits.isolation == "full"
    is_counted_apart = is_full or os.getuid() >= _FIRST_USER
    _set(resource.RLIMIT_NPROC, THREADS + (0 if is_counted_apart else _count_tasks()))
    _set(resource.RLIMIT_FSIZE, limits.output_kb << 10)
    _set(resource.RLIMIT_NOFILE, FILES)
    _set(resource.RLIMIT_MEMLOCK, 0)
    kernel.prctl(kernel.PR_SET_DUMPABLE, 0)
    kernel.prctl(kernel.PR_SET_PDEATHSIG, 9)
    if not is_full:
        _restrict_files(limits.readable)
    restrain_tester(limits)


def restrain_tester(limits: JobLimits) -> None:
    """Drop rights that a tester does not need after it has started its candidate."""
    _set(resource.RLIMIT_AS, limits.memory_mb << 20)
    _set(resource.RLIMIT_CORE, 0)
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


def _restrict_files(readable: Iterable[str]) -> None:
    """Deny this process all file access except reading some, by Landlock, without privileges."""
    try:
        version = kernel.call("syscall", _CREATE, None, 0, 1)
    except OSError as error:
        raise OSError("this kernel has no Landlock to close the file system with") from error
    attributes = struct.pack("=Q", (1 << _RIGHTS.get(version, 16)) - 1)
    rules = kernel.call("syscall", _CREATE, attributes, len(attributes), 0)
    for path in readable:
        parent = os.open(path, os.O_PATH)
        rights = _READ_FILE | (_READ_DIR if os.path.isdir(path) else 0)
        kernel.call("syscall", _ADD, rules, 1, struct.pack("=Qi", rights, parent), 0)
        os.close(parent)
    kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
    kernel.call("syscall", _RESTRICT, rules, 0)
    os.close(rules)


def _set(kind: int, limit: int) -> None:
    ceiling = resource.getrlimit(kind)[1]
    limit = limit if ceiling == resource.RLIM_INFINITY else min(limit, ceiling)
    resource.setrlimit(kind, (limit, limit))
