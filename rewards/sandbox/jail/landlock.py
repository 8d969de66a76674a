"""Landlock restricts a process to reading some folders; it needs no privilege."""

import os
import struct
from collections.abc import Iterable

from . import kernel

_CREATE, _ADD, _RESTRICT = 444, 445, 446
_READ_FILE, _READ_DIR = 1 << 2, 1 << 3
_RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15}
"""Number of access rights by version of Landlock; 16 from version 5."""


def restrict(readable: Iterable[str]) -> None:
    """Deny this process all file access except reading these files and folders.

    Raises:
        OSError: the kernel refuses.
    """
    try:
        version = kernel.syscall(_CREATE, None, 0, 1)
    except OSError as error:
        raise OSError("this kernel has no Landlock to close the file system with") from error
    attributes = struct.pack("=Q", (1 << _RIGHTS.get(version, 16)) - 1)
    rules = kernel.syscall(_CREATE, attributes, len(attributes), 0)
    for path in readable:
        parent = os.open(path, os.O_PATH)
        rights = _READ_FILE | (_READ_DIR if os.path.isdir(path) else 0)
        kernel.syscall(_ADD, rules, 1, struct.pack("=Qi", rights, parent), 0)
        os.close(parent)
    kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
    kernel.syscall(_RESTRICT, rules, 0)
    os.close(rules)
