"""A filter that refuses system calls no solution to a programming task needs.

New processes, programs, sockets, signals, other processes' memory, limits and priorities, owners
and modes of files, cutting files short by name, mounts and namespaces, keys, tracing, and memory
that no limit counts. Refused calls fail with EPERM; calls newer than this list are answered as if
the kernel had none. Threads still start.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct

from .kernel import PR_SET_NO_NEW_PRIVS, call, machine, prctl

_SHARED = {
    "pidfd_send_signal": 424,
    "io_uring_setup": 425,
    "io_uring_enter": 426,
    "io_uring_register": 427,
    "open_tree": 428,
    "move_mount": 429,
    "fsopen": 430,
    "fsconfig": 431,
    "fsmount": 432,
    "fspick": 433,
    "pidfd_open": 434,
    "openat2": 437,
    "pidfd_getfd": 438,
    "process_madvise": 440,
    "mount_setattr": 442,
    "memfd_secret": 447,
    "process_mrelease": 448,
    "fchmodat2": 452,
}
_X86_64 = {
    "shmget": 29,
    "connect": 42,
    "socket": 41,
    "accept": 43,
    "bind": 49,
    "listen": 50,
    "fork": 57,
    "vfork": 58,
    "execve": 59,
    "kill": 62,
    "semget": 64,
    "msgget": 68,
    "truncate": 76,
    "ptrace": 101,
    "syslog": 103,
    "personality": 135,
    "pivot_root": 155,
    "prctl": 157,
    "adjtimex": 159,
    "chroot": 161,
    "acct": 163,
    "settimeofday": 164,
    "mount": 165,
    "umount2": 166,
    "swapon": 167,
    "swapoff": 168,
    "reboot": 169,
    "sethostname": 170,
    "setdomainname": 171,
    "iopl": 172,
    "ioperm": 173,
    "init_module": 175,
    "delete_module": 176,
    "quotactl": 179,
    "tkill": 200,
    "clock_settime": 227,
    "tgkill": 234,
    "kexec_load": 246,
    "mq_open": 240,
    "add_key": 248,
    "request_key": 249,
    "keyctl": 250,
    "unshare": 272,
    "accept4": 288,
    "perf_event_open": 298,
    "rt_sigqueueinfo": 129,
    "rt_tgsigqueueinfo": 297,
    "fanotify_init": 300,
    "name_to_handle_at": 303,
    "open_by_handle_at": 304,
    "clock_adjtime": 305,
    "setns": 308,
    "process_vm_readv": 310,
    "process_vm_writev": 311,
    "kcmp": 312,
    "finit_module": 313,
    "seccomp": 317,
    "memfd_create": 319,
    "kexec_file_load": 320,
    "bpf": 321,
    "execveat": 322,
    "userfaultfd": 323,
    "chmod": 90,
    "fchmod": 91,
    "chown": 92,
    "fchown": 93,
    "lchown": 94,
    "utime": 132,
    "mknod": 133,
    "setpriority": 141,
    "sched_setparam": 142,
    "sched_setscheduler": 144,
    "setxattr": 188,
    "lsetxattr": 189,
    "fsetxattr": 190,
    "removexattr": 197,
    "lremovexattr": 198,
    "fremovexattr": 199,
    "sched_setaffinity": 203,
    "utimes": 235,
    "ioprio_set": 251,
    "migrate_pages": 256,
    "mknodat": 259,
    "fchownat": 260,
    "futimesat": 261,
    "fchmodat": 268,
    "move_pages": 279,
    "utimensat": 280,
    "sched_setattr": 314,
}
_AARCH64 = {
    "umount2": 39,
    "mount": 40,
    "pivot_root": 41,
    "truncate": 45,
    "chroot": 51,
    "quotactl": 60,
    "acct": 89,
    "personality": 92,
    "unshare": 97,
    "kexec_load": 104,
    "init_module": 105,
    "delete_module": 106,
    "clock_settime": 112,
    "syslog": 116,
    "ptrace": 117,
    "kill": 129,
    "tkill": 130,
    "tgkill": 131,
    "rt_sigqueueinfo": 138,
    "reboot": 142,
    "sethostname": 161,
    "setdomainname": 162,
    "prctl": 167,
    "settimeofday": 170,
    "adjtimex": 171,
    "mq_open": 180,
    "msgget": 186,
    "semget": 190,
    "shmget": 194,
    "socket": 198,
    "bind": 200,
    "listen": 201,
    "accept": 202,
    "connect": 203,
    "add_key": 217,
    "request_key": 218,
    "keyctl": 219,
    "execve": 221,
    "swapon": 224,
    "swapoff": 225,
    "rt_tgsigqueueinfo": 240,
    "perf_event_open": 241,
    "accept4": 242,
    "fanotify_init": 262,
    "name_to_handle_at": 264,
    "open_by_handle_at": 265,
    "clock_adjtime": 266,
    "setns": 268,
    "process_vm_readv": 270,
    "process_vm_writev": 271,
    "kcmp": 272,
    "finit_module": 273,
    "seccomp": 277,
    "memfd_create": 279,
    "bpf": 280,
    "execveat": 281,
    "userfaultfd": 282,
    "kexec_file_load": 294,
    "setxattr": 5,
    "lsetxattr": 6,
    "fsetxattr": 7,
    "removexattr": 14,
    "lremovexattr": 15,
    "fremovexattr": 16,
    "ioprio_set": 30,
    "mknodat": 33,
    "fchmod": 52,
    "fchmodat": 53,
    "fchownat": 54,
    "fchown": 55,
    "utimensat": 88,
    "sched_setparam": 118,
    "sched_setscheduler": 119,
    "sched_setaffinity": 122,
    "setpriority": 140,
    "migrate_pages": 238,
    "move_pages": 239,
    "sched_setattr": 274,
}
_AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_WATCHED = {
    "x86_64": {"clone": 56, "ioctl": 16, "fcntl": 72, "prlimit64": 302, "open": 2, "openat": 257},
    "aarch64": {"clone": 220, "ioctl": 29, "fcntl": 25, "prlimit64": 261, "openat": 56},
}
"""Calls whose arguments decide."""
OPENING = ("open", "openat")
"""Refused where they empty a file. Landlock before Linux 6.2 lets pass that a file which may only
be read is emptied, by its name or as it is opened."""
_CLONE3, _CLONE_THREAD, _NEWER = 435, 0x10000, 463
_TERMINAL_QUESTIONS = (0x5401, 0x5413, 0x5421, 0x541B, 0x5450, 0x5451)
"""TCGETS, TIOCGWINSZ, FIONBIO, FIONREAD, FIONCLEX, FIOCLEX: what Python's files ask."""
_SIGNAL_OTHERS = (8, 10, 15)
"""F_SETOWN, F_SETSIG, F_SETOWN_EX: they make a pipe send any signal to any process of the user."""
_ALLOW, _KILL, _FAIL = 0x7FFF0000, 0x80000000, 0x00050000
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_FIRST, _SECOND, _THIRD = (_LOAD, 0, 0, 16), (_LOAD, 0, 0, 24), (_LOAD, 0, 0, 32)
"""Load the lower half of an argument."""
_Line = tuple[int, int, int, int]
_PR_SET_SECCOMP, _MODE_FILTER = 22, 2


def supported() -> bool:
    """Whether the numbers of this processor's system calls are known here."""
    return os.name == "posix" and machine() in _AUDIT_ARCH and os.path.exists("/proc/self")


def program(architecture: str, allowed: tuple[str, ...] = ()) -> bytes:
    """The filter as BPF instructions.

    Args:
        architecture: `x86_64` or `aarch64`.
        allowed: names of calls to leave open.
    """
    calls = {**_SHARED, **(_X86_64 if architecture == "x86_64" else _AARCH64)}
    denied = sorted(number for name, number in calls.items() if name not in allowed)
    fail = (_RETURN, 0, 0, _FAIL | errno.EPERM)
    missing = (_RETURN, 0, 0, _FAIL | errno.ENOSYS)
    lines = [(_LOAD, 0, 0, 4), (_EQUAL, 1, 0, _AUDIT_ARCH[architecture]), (_RETURN, 0, 0, _KILL)]
    lines += [(_LOAD, 0, 0, 0), (_AT_LEAST, 0, 1, _NEWER), missing]
    # The C library starts threads by clone3 and falls back on clone, whose flags a filter can see.
    lines += [(_EQUAL, 0, 1, _CLONE3), missing]
    for number in denied:
        lines += [(_EQUAL, 0, 1, number), fail]
    watched = {k: number for k, number in _WATCHED[architecture].items() if k not in allowed}
    for name, number in watched.items():
        checks = _checks(name, fail)
        lines += [(_EQUAL, 0, len(checks), number), *checks]
    lines.append((_RETURN, 0, 0, _ALLOW))
    return b"".join(struct.pack("<HBBI", *line) for line in lines)


def _checks(name: str, fail: _Line) -> list[_Line]:
    """Instructions that decide by the arguments of a call; every path ends in a return."""
    allow = (_RETURN, 0, 0, _ALLOW)
    if name == "clone":
        return [_FIRST, (_ANY_BIT, 0, 1, _CLONE_THREAD), allow, fail]
    if name in OPENING:
        flags = _SECOND if name == "open" else _THIRD
        return [flags, (_ANY_BIT, 0, 1, os.O_TRUNC), fail, allow]
    if name == "prlimit64":
        return [_FIRST, (_EQUAL, 0, 1, 0), allow, fail]
    if name == "ioctl":
        listed = [part for value in _TERMINAL_QUESTIONS for part in ((_EQUAL, 0, 1, value), allow)]
        return [_SECOND, *listed, fail]
    listed = [part for value in _SIGNAL_OTHERS for part in ((_EQUAL, 0, 1, value), fail)]
    return [_SECOND, *listed, allow]


def confine(allowed: tuple[str, ...] = ()) -> None:
    """Put this process under the filter, for good.

    Raises:
        OSError: the kernel refuses.
    """
    code = program(machine(), allowed)
    buffer = ctypes.create_string_buffer(code, len(code))
    header = struct.pack("@HP", len(code) // 8, ctypes.addressof(buffer))
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    call("prctl", _PR_SET_SECCOMP, ctypes.c_ulong(_MODE_FILTER), ctypes.c_char_p(header), 0, 0)
