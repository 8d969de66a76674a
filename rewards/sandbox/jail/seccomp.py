"""A filter that refuses system calls that no solution to a programming task needs.

Refused are new processes, programs, sockets, signals, memory, limits and priorities of other
processes, other users, owners and modes of files, truncating files by name, mounts and namespaces,
keys, tracing, and memory that no limit counts. Refused calls fail with EPERM; calls newer than this
list with ENOSYS. Threads can still start.
"""

import ctypes
import errno
import os
import platform
import struct
import sys
from collections.abc import Iterable

from .kernel import PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, prctl

_REFUSED = """
shmget=29/194 connect=42/203 socket=41/198 accept=43/202 bind=49/200 listen=50/201 fork=57/-
vfork=58/- execve=59/221 kill=62/129 semget=64/190 msgget=68/186 truncate=76/45 ptrace=101/117
syslog=103/116 personality=135/92 pivot_root=155/41 prctl=157/167 adjtimex=159/171 chroot=161/51
acct=163/89 settimeofday=164/170 mount=165/40 umount2=166/39 swapon=167/224 swapoff=168/225
reboot=169/142 sethostname=170/161 setdomainname=171/162 iopl=172/- ioperm=173/-
init_module=175/105 delete_module=176/106 quotactl=179/60 tkill=200/130 clock_settime=227/112
tgkill=234/131 kexec_load=246/104 mq_open=240/180 add_key=248/217 request_key=249/218
keyctl=250/219 unshare=272/97 accept4=288/242 perf_event_open=298/241 rt_sigqueueinfo=129/138
rt_tgsigqueueinfo=297/240 fanotify_init=300/262 name_to_handle_at=303/264
open_by_handle_at=304/265 clock_adjtime=305/266 setns=308/268 process_vm_readv=310/270
process_vm_writev=311/271 kcmp=312/272 finit_module=313/273 seccomp=317/277 memfd_create=319/279
kexec_file_load=320/294 bpf=321/280 execveat=322/281 userfaultfd=323/282 chmod=90/- fchmod=91/52
chown=92/- fchown=93/55 lchown=94/- utime=132/- mknod=133/- setpriority=141/140
sched_setparam=142/118 sched_setscheduler=144/119 setxattr=188/5 lsetxattr=189/6 fsetxattr=190/7
removexattr=197/14 lremovexattr=198/15 fremovexattr=199/16 sched_setaffinity=203/122
utimes=235/- ioprio_set=251/30 migrate_pages=256/238 mknodat=259/33 fchownat=260/54
futimesat=261/- fchmodat=268/53 move_pages=279/239 utimensat=280/88 sched_setattr=314/274
pidfd_send_signal=424 io_uring_setup=425 io_uring_enter=426 io_uring_register=427 open_tree=428
move_mount=429 fsopen=430 fsconfig=431 fsmount=432 fspick=433 pidfd_open=434 openat2=437
pidfd_getfd=438 process_madvise=440 mount_setattr=442 memfd_secret=447 process_mrelease=448
fchmodat2=452 setuid=105/146 setgid=106/144 setreuid=113/145 setregid=114/143 setgroups=116/159
setresuid=117/147 setresgid=119/149 setfsuid=122/151 setfsgid=123/152 shmat=30/196 shmctl=31/195
semop=65/193 semctl=66/191 semtimedop=220/192 msgsnd=69/189 msgrcv=70/188 msgctl=71/187
"""
"""Names and numbers: `x86_64/aarch64` where these differ, `-` where there is no such call."""
ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
"""The kernel's numbers for them."""
_Line = tuple[int, int, int, int]
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_KILL, _ALLOW = (_RETURN, 0, 0, 0x80000000), (_RETURN, 0, 0, 0x7FFF0000)
_FAIL, _MISSING = [(_RETURN, 0, 0, 0x50000 | code) for code in (errno.EPERM, errno.ENOSYS)]
_TERMINAL_QUESTIONS = (0x5401, 0x5413, 0x5421, 0x541B, 0x5450, 0x5451)
"""TCGETS, TIOCGWINSZ, FIONBIO, FIONREAD, FIONCLEX, FIOCLEX: used by Python's files."""
_SIGNAL_OTHERS = (8, 10, 15)
"""F_SETOWN, F_SETSIG, F_SETOWN_EX: they make a pipe send any signal to any process of the user."""
_Rule = tuple[int, int, Iterable[int], _Line, _Line]
WATCHED: dict[str, _Rule] = {
    "clone=56/220": (0, _ANY_BIT, [0x10000], _ALLOW, _FAIL),  # threads
    # Landlock before Linux 6.2 does not prevent that read-only files are truncated.
    "open=2/-": (1, _ANY_BIT, [os.O_TRUNC], _FAIL, _ALLOW),
    "openat=257/56": (2, _ANY_BIT, [os.O_TRUNC], _FAIL, _ALLOW),
    "prlimit64=302/261": (0, _EQUAL, [0], _ALLOW, _FAIL),  # of this process
    "ioctl=16/29": (1, _EQUAL, _TERMINAL_QUESTIONS, _ALLOW, _FAIL),
    "fcntl=72/25": (1, _EQUAL, _SIGNAL_OTHERS, _FAIL, _ALLOW),
}
"""Calls that depend on an argument: its place, a comparison with values, and what follows if one
holds and if none does."""
_CLONE3, _NEWER = 435, 463
_MODE_FILTER = 2


def _numbers(table: str, architecture: str) -> dict[str, int]:
    """The numbers of the calls in a table, by name."""
    place, found = list(ARCHITECTURES).index(architecture), {}
    for name, _, written in (entry.partition("=") for entry in table.split()):
        numbers = written.split("/")
        if (number := numbers[place % len(numbers)]) != "-":
            found[name] = int(number)
    return found


REFUSED = {architecture: _numbers(_REFUSED, architecture) for architecture in ARCHITECTURES}


def check_support() -> None:
    """Raise an OSError where the numbers of this machine's system calls are not known."""
    machine = platform.machine()
    if machine not in ARCHITECTURES or sys.platform != "linux":
        raise OSError(f"no system call filter for {sys.platform} on {machine}")


def build_filter(architecture: str) -> bytes:
    """The filter as BPF instructions, for `x86_64` or `aarch64`."""
    lines = [(_LOAD, 0, 0, 4), (_EQUAL, 1, 0, ARCHITECTURES[architecture]), _KILL]
    lines += [(_LOAD, 0, 0, 0), (_AT_LEAST, 0, 1, _NEWER), _MISSING]
    # The C library starts threads by clone3 and falls back to clone, whose flags a filter can read.
    lines += [(_EQUAL, 0, 1, _CLONE3), _MISSING]
    for number in sorted(REFUSED[architecture].values()):
        lines += [(_EQUAL, 0, 1, number), _FAIL]
    for call, (argument, comparison, values, then, else_) in WATCHED.items():
        checks = [line for value in values for line in ((comparison, 0, 1, value), then)]
        # the lower half of the argument
        checks = [(_LOAD, 0, 0, 16 + 8 * argument), *checks, else_]
        for number in _numbers(call, architecture).values():
            lines += [(_EQUAL, 0, len(checks), number), *checks]
    return b"".join(struct.pack("<HBBI", *line) for line in [*lines, _ALLOW])


def confine() -> None:
    """Apply the filter to this process, permanently. Raises OSError: the kernel refuses."""
    code = build_filter(platform.machine())
    buffer = ctypes.create_string_buffer(code, len(code))
    header = struct.pack("@HP", len(code) // 8, ctypes.addressof(buffer))
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    prctl(PR_SET_SECCOMP, _MODE_FILTER, ctypes.c_char_p(header))
