"""Kernel calls of the sandbox for which Python has no function."""

import ctypes
import os
from typing import Any

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_SECCOMP, PR_SET_CHILD_SUBREAPER = 1, 4, 22, 36
PR_SET_NO_NEW_PRIVS, PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL = 38, 47, 4
_libc = ctypes.CDLL(None, use_errno=True)


def call(name: str, *arguments: Any) -> int:
    """Call a function of the C library; integers are passed at full width. Raises OSError: it
    failed; the message begins with its name."""
    wide = [ctypes.c_long(each) if isinstance(each, int) else each for each in arguments]
    result = getattr(_libc, name)(*wide)
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{name}: {os.strerror(code)}")
    return result


def prctl(option: int, *values: Any) -> None:
    """Set an attribute of this process."""
    call("prctl", option, *(*values, 0, 0, 0, 0)[:4])


def drop_capabilities() -> None:
    """Drop all capabilities permanently; set-uid programs cannot restore them."""
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL)
    call("capset", (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)())
