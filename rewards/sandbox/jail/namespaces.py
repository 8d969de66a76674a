"""Namespaces: isolation from network, other processes and all files but the library."""

import ctypes
import os
import platform
from collections.abc import Iterable

from .kernel import call

_NOBODY = 65534
_SPACES = 0x20000 | 0x4000000 | 0x8000000 | 0x10000000 | 0x20000000 | 0x40000000
"""Mounts, names of the machine, IPC, users, processes and network."""
_NOSUID, _BIND, _REC, _PRIVATE = 2, 0x1000, 0x4000, 0x40000
_MOUNT_SETATTR, _AT_FDCWD, _AT_RECURSIVE = 442, -100, 0x8000
_LOCKED = 1 | 2 | 4
"""A mount that is read-only, without set-uid programs and device files."""
_ROOT, _DETACH = b"/tmp", 2
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}


def enter_namespaces(readable: Iterable[str]) -> None:
    """Enter new namespaces; returns in a new process, which has the number 1 there, and with which
    the calling process ends. The files and folders to read are mounted under the same path, and
    there are no others. Raises OSError: the kernel refuses a step; the message names it."""
    maps = {"setgroups": "deny", "uid_map": os.geteuid(), "gid_map": os.getegid()}
    call("unshare", _SPACES)
    for name, own in maps.items():
        with open(f"/proc/self/{name}", "w") as file:
            file.write(own if own == "deny" else f"{_NOBODY} {own} 1")
    call("sethostname", b"sandbox", 7)
    _change_root(map(os.fsencode, readable))
    pid = os.fork()
    if pid:
        os.closerange(0, 2)
        os.waitpid(pid, 0)
        os._exit(0)


def _change_root(readable: Iterable[bytes]) -> None:
    call("mount", None, b"/", None, _REC | _PRIVATE, None)
    # The new root hides its place; an open file still refers to what is there.
    sources = {path: b"/proc/self/fd/%d" % os.open(path, os.O_PATH) for path in readable}
    call("mount", b"tmpfs", _ROOT, b"tmpfs", _NOSUID, b"size=1m,mode=755")
    for path, source in sources.items():
        target = _ROOT + path
        os.makedirs(target if os.path.isdir(source) else os.path.dirname(target))
        if not os.path.exists(target):
            os.close(os.open(target, os.O_CREAT | os.O_WRONLY))
        call("mount", source, target, None, _BIND | _REC, None)
        _lock(target, _AT_RECURSIVE)
        os.close(int(os.path.basename(source)))
    os.makedirs(_ROOT + b"/.old")
    os.chdir(_ROOT)
    call("syscall", _PIVOT_ROOT[platform.machine()], b".", b".old")
    os.chdir("/")
    call("umount2", b"/.old", _DETACH)
    os.rmdir("/.old")
    _lock(b"/", 0)


def _lock(path: bytes, below: int) -> None:
    attributes = (ctypes.c_uint64 * 4)(_LOCKED, 0, 0, 0)
    size = ctypes.sizeof(attributes)
    call("syscall", _MOUNT_SETATTR, _AT_FDCWD, path, below, attributes, size)
