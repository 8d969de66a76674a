"""Kernel calls of the sandbox for which Python has no function."""

import ctypes
import os
from typing import Any

CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC = 0x20000, 0x4000000, 0x8000000
CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = 0x10000000, 0x20000000, 0x40000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC = 1, 2, 4, 8
MS_BIND, MS_REC, MS_PRIVATE, MNT_DETACH = 0x1000, 0x4000, 0x40000, 2
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_NO_NEW_PRIVS = 1, 4, 38
PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL = 47, 4
MOUNT_SETATTR = 442
_AT_FDCWD, _AT_RECURSIVE = -100, 0x8000
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
    wide = (ctypes.c_long(a) if isinstance(a, int) else a for a in arguments)
    result = _libc.syscall(ctypes.c_long(number), *wide)
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"system call {number}: {os.strerror(code)}")
    return result


def prctl(option: int, value: int) -> None:
    """Set an attribute of this process."""
    call("prctl", option, ctypes.c_ulong(value), *[ctypes.c_ulong(0)] * 3)


def mount(source: str, target: str, kind: str = "", flags: int = 0, options: str = "") -> None:
    """Mount a file system or bind a path."""
    texts = [text.encode() or None for text in (source, target, kind, options)]
    call("mount", texts[0], texts[1], texts[2], ctypes.c_ulong(flags), texts[3])


def make_read_only(path: str, recursive: bool = True, devices: bool = False) -> None:
    """Make a mount, and those below it, read-only, without set-uid programs and device files."""
    flags = MS_RDONLY | MS_NOSUID | (0 if devices else MS_NODEV)
    attributes = (ctypes.c_uint64 * 4)(flags, 0, 0, 0)
    below = _AT_RECURSIVE if recursive else 0
    syscall(MOUNT_SETATTR, _AT_FDCWD, path.encode(), below, attributes, ctypes.sizeof(attributes))


def drop_capabilities() -> None:
    """Drop all capabilities permanently; set-uid programs cannot restore them."""
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    call("prctl", PR_CAP_AMBIENT, *map(ctypes.c_ulong, (PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)))
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    call("capset", header, (ctypes.c_uint32 * 6)())
