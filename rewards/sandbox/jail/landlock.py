"""Landlock restricts a process to reading some folders; it needs no privilege."""

import ctypes
import os
import struct
from collections.abc import Iterable

from .kernel import PR_SET_NO_NEW_PRIVS, prctl, syscall

_CREATE, _ADD, _RESTRICT = 444, 445, 446
_READ_FILE, _READ_DIR = 1 << 2, 1 << 3
_RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15}
"""Number of access rights by version of Landlock; 16 from version 5."""


def read_version() -> int:
    """The kernel's version of Landlock, 0 where it has none."""
    try:
        return syscall(_CREATE, None, 0, 1)
    except OSError:
        return 0


def restrict(readable: Iterable[str]) -> None:
    """Deny this process all file access except reading these files and folders.

    Raises:
        OSError: the kernel refuses.
    """
    rights = (1 << _RIGHTS.get(read_version(), 16)) - 1
    attributes = struct.pack("=Q", rights)
    rules = syscall(_CREATE, ctypes.c_char_p(attributes), len(attributes), 0)
    for path in readable:
        folder = os.path.isdir(path)
        parent = os.open(path, os.O_PATH | os.O_CLOEXEC)
        rule = struct.pack("=Qi", _READ_FILE | (_READ_DIR if folder else 0), parent)
        syscall(_ADD, rules, 1, ctypes.c_char_p(rule), 0)
        os.close(parent)
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    syscall(_RESTRICT, rules, 0)
    os.close(rules)
