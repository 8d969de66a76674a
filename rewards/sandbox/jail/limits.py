"""What a candidate may use, and how a process gives up everything else."""

import contextlib
import os
import resource
from dataclasses import dataclass

from . import kernel, landlock, seccomp


@dataclass(frozen=True)
class JobLimits:
    """JobLimits of one candidate.

    Attributes:
        level: `full`, `process` or `bare` (only what happens to work: the machine is disposable).
        timeout: seconds on the clock for loading the code and for each test.
        cpu_seconds: processor time of all tests of one job together.
        memory_mb: address space.
        output_kb: what it may write to stdout, to files, and in one answer.
        readable: folders with the standard library and what it loads.
    """

    level: str
    timeout: float
    cpu_seconds: int
    memory_mb: int
    output_kb: int
    readable: tuple[str, ...]


THREADS, FILES = 64, 64


def restrain_candidate(limits: JobLimits) -> None:
    """Apply every limit to this process, for good; the last thing before the user's code.

    Raises:
        OSError: the kernel refuses one, which at level `bare` is let pass.
    """
    _set(resource.RLIMIT_CPU, limits.cpu_seconds, limits.cpu_seconds + 1)
    _set(resource.RLIMIT_AS, limits.memory_mb << 20)
    _set(resource.RLIMIT_FSIZE, limits.output_kb << 10)
    _set(resource.RLIMIT_NOFILE, FILES)
    _set(resource.RLIMIT_CORE, 0)
    _set(resource.RLIMIT_MEMLOCK, 0)
    if limits.level == "full":
        # Elsewhere it would count the processes of the same user outside; fork is closed anyway.
        # Linux ignores this limit if the user outside is root; memory bounds the threads then.
        _set(resource.RLIMIT_NPROC, THREADS)
    optional = contextlib.suppress(OSError) if limits.level == "bare" else contextlib.nullcontext()
    with optional:
        kernel.drop_capabilities()
    kernel.prctl(kernel.PR_SET_DUMPABLE, 0)
    kernel.prctl(kernel.PR_SET_PDEATHSIG, 9)
    if limits.level != "full":
        with optional:
            landlock.restrict(path for path in limits.readable if os.path.exists(path))
    with optional:
        # Only the full level has a folder to write in, and no other file that could be written.
        seccomp.confine(seccomp.OPENING if limits.level == "full" else ())


def restrain_tester(limits: JobLimits) -> None:
    """Take from a tester what it does not need once its candidate exists."""
    _set(resource.RLIMIT_AS, limits.memory_mb << 20)
    _set(resource.RLIMIT_CORE, 0)
    if limits.level != "bare":
        kernel.drop_capabilities()
        seccomp.confine(allowed=("kill",))


def _set(kind: int, soft: int, hard: int | None = None) -> None:
    ceiling = resource.getrlimit(kind)[1]
    wanted = soft if hard is None else hard
    hard = wanted if ceiling == resource.RLIM_INFINITY else min(wanted, ceiling)
    resource.setrlimit(kind, (min(soft, hard), hard))
