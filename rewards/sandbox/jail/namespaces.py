"""Namespaces: isolation from network, other processes and all files but the library."""

import os
import platform
import stat
from collections.abc import Iterable

from . import kernel

NOBODY = 65534
_PLACE = os.path.dirname(os.path.abspath(__file__))
"""Where the new root is mounted; the contents of this folder are not needed any more."""
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}


def enter_namespaces(readable: Iterable[str]) -> None:
    """Enter new namespaces; returns in a new process, which has the number 1 there.

    The calling process waits for the new one and ends with it.

    Args:
        readable: files and folders to mount read-only under the same path.

    Raises:
        OSError: the kernel refuses a step; the message names it.
    """
    user, group = os.geteuid(), os.getegid()
    spaces = kernel.CLONE_NEWUSER | kernel.CLONE_NEWNS | kernel.CLONE_NEWNET
    spaces |= kernel.CLONE_NEWIPC | kernel.CLONE_NEWUTS | kernel.CLONE_NEWPID
    kernel.call("unshare", spaces)
    _write("/proc/self/setgroups", "deny")
    _write("/proc/self/uid_map", f"{NOBODY} {user} 1")
    _write("/proc/self/gid_map", f"{NOBODY} {group} 1")
    kernel.call("sethostname", b"sandbox", 7)
    _change_root(list(readable))
    pid = os.fork()
    if pid:
        for fd in (0, 1):
            os.close(fd)
        os.waitpid(pid, 0)
        os._exit(0)
    kernel.prctl(kernel.PR_SET_PDEATHSIG, 9)


def _change_root(readable: list[str]) -> None:
    kernel.mount("", "/", flags=kernel.MS_REC | kernel.MS_PRIVATE)
    sources = {path: os.open(path, os.O_PATH) for path in readable if os.path.exists(path)}
    null = os.open("/dev/null", os.O_PATH)
    kernel.mount("tmpfs", _PLACE, "tmpfs", kernel.MS_NOSUID, "size=1m,mode=755")
    for path, source in sources.items():
        _take_along(path, source)
        kernel.make_read_only(_PLACE + path)
    _take_along("/dev/null", null)
    kernel.make_read_only(_PLACE + "/dev/null", devices=True)
    for folder in ("/tmp", "/.old"):
        os.makedirs(_PLACE + folder, exist_ok=True)
    os.chdir(_PLACE)
    kernel.syscall(_PIVOT_ROOT[platform.machine()], b".", b".old")
    os.chdir("/")
    kernel.call("umount2", b"/.old", kernel.MNT_DETACH)
    os.rmdir("/.old")
    kernel.make_read_only("/", recursive=False)
    for fd in (*sources.values(), null):
        os.close(fd)


def _take_along(path: str, source: int) -> None:
    target = _PLACE + path
    if stat.S_ISDIR(os.fstat(source).st_mode):
        os.makedirs(target, exist_ok=True)
    else:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY))
    # The new root may already hide the path; the open file still refers to it.
    kernel.mount(f"/proc/self/fd/{source}", target, flags=kernel.MS_BIND | kernel.MS_REC)


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)
