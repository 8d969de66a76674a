"""Kernel calls of the sandbox for which Python has no function."""

import ctypes
import os
from typing import Any

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_SECCOMP, PR_SET_CHILD_SUBREAPER = 1, 4, 22, 36
PR_SET_NO_NEW_PRIVS, PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL = 38, 47, 4
_MOUNT_SETATTR, _AT_FDCWD, _AT_RECURSIVE = 442, -100, 0x8000
_READ_ONLY, _NOSUID, _NODEV = 1, 2, 4
_libc = ctypes.CDLL(None, use_errno=True)


def call(name: str, *arguments: Any) -> int:
    """Call a function of the C library.

    Raises:
        OSError: it failed; the message begins with its name.
    """
    result = getattr(_libc, name)(*arguments)
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{name}: {os.strerror(code)}")
    return result


def syscall(number: int, *arguments: Any) -> int:
    """Make a system call by number; integers are passed at full width."""
    return call(
        "syscall", *(ctypes.c_long(a) if isinstance(a, int) else a for a in (number, *arguments))
    )


def prctl(option: int, *values: Any) -> None:
    """Set an attribute of this process."""
    padded = (*values, 0, 0, 0, 0)[:4]
    call("prctl", option, *(ctypes.c_ulong(v) if isinstance(v, int) else v for v in padded))


def mount(source: str, target: str, kind: str = "", flags: int = 0, options: str = "") -> None:
    """Mount a file system or bind a path."""
    texts = [text.encode() or None for text in (source, target, kind, options)]
    call("mount", *texts[:3], ctypes.c_ulong(flags), texts[3])


def make_read_only(path: str, recursive: bool = True) -> None:
    """Make a mount, and those below it, read-only, without set-uid programs and device files."""
    attributes = (ctypes.c_uint64 * 4)(_READ_ONLY | _NOSUID | _NODEV, 0, 0, 0)
    below, size = _AT_RECURSIVE * recursive, ctypes.sizeof(attributes)
    syscall(_MOUNT_SETATTR, _AT_FDCWD, path.encode(), below, attributes, size)


def drop_capabilities() -> None:
    """Drop all capabilities permanently; set-uid programs cannot restore them."""
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL)
    call("capset", (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)())
