"""Namespaces: isolation from network, other processes and all files but the library."""

import os
import platform
from collections.abc import Iterable

from . import kernel

_NOBODY = 65534
_SPACES = 0x20000 | 0x4000000 | 0x8000000 | 0x10000000 | 0x20000000 | 0x40000000
"""Mounts, names of the machine, IPC, users, processes and network."""
_NOSUID, _BIND, _REC, _PRIVATE = 2, 0x1000, 0x4000, 0x40000
_ROOT, _DETACH = "/tmp", 2
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}


def enter_namespaces(readable: Iterable[str]) -> None:
    """Enter new namespaces; returns in a new process, which has the number 1 there.

    The calling process waits for the new one and ends with it.

    Args:
        readable: files and folders to mount read-only under the same path; there are no others.

    Raises:
        OSError: the kernel refuses a step; the message names it.
    """
    maps = {"setgroups": "deny", "uid_map": os.geteuid(), "gid_map": os.getegid()}
    kernel.call("unshare", _SPACES)
    for name, own in maps.items():
        with open(f"/proc/self/{name}", "w") as file:
            file.write(own if own == "deny" else f"{_NOBODY} {own} 1")
    kernel.call("sethostname", b"sandbox", 7)
    _change_root(readable)
    pid = os.fork()
    if pid:
        os.closerange(0, 2)
        os.waitpid(pid, 0)
        os._exit(0)


def _change_root(readable: Iterable[str]) -> None:
    kernel.mount("", "/", flags=_REC | _PRIVATE)
    # The new root hides its place; an open file still refers to what is there.
    sources = {path: os.open(path, os.O_PATH) for path in readable}
    kernel.mount("tmpfs", _ROOT, "tmpfs", _NOSUID, "size=1m,mode=755")
    for path, source in sources.items():
        target = _ROOT + path
        os.makedirs(target if os.path.isdir(f"/proc/self/fd/{source}") else os.path.dirname(target))
        if not os.path.exists(target):
            os.close(os.open(target, os.O_CREAT | os.O_WRONLY))
        kernel.mount(f"/proc/self/fd/{source}", target, flags=_BIND | _REC)
        kernel.make_read_only(target)
        os.close(source)
    os.makedirs(f"{_ROOT}/.old")
    os.chdir(_ROOT)
    kernel.syscall(_PIVOT_ROOT[platform.machine()], b".", b".old")
    os.chdir("/")
    kernel.call("umount2", b"/.old", _DETACH)
    os.rmdir("/.old")
    kernel.make_read_only("/", recursive=False)
