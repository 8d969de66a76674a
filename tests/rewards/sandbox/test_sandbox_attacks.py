"""Code that tries to pass without solving, to get out, or to bring the machine down."""

import contextlib
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from mmrl.rewards.sandbox.jail import seccomp
from mmrl.rewards.sandbox.sandbox import IsolationError, Job, Sandbox

TESTS = ["assert add(1, 2) == 3", "assert add(20, 22) == 42"]
RIGHT = "def add(a, b):\n    return a + b\n"
LEVELS = ("full", "process")


@pytest.fixture(scope="module", params=LEVELS)
def sandbox(request: pytest.FixtureRequest) -> Iterator[Sandbox]:
    try:
        sandbox = Sandbox(request.param, 1.5, memory_mb=256, output_kb=256, workers=6)
    except IsolationError as error:
        pytest.skip(str(error))
    yield sandbox
    sandbox.close()


FORGERIES = {
    "exit": "exit()",
    "exit with success": "import sys; sys.exit(0)",
    "exit at once": "import os; os._exit(0)",
    "exit when called": "import os\ndef add(a, b):\n    os._exit(0)",
    "close the standard streams": "import os\nfor fd in (0, 1, 2): os.close(fd)",
    "print the marker": "print('passed: true'); print('__PASS_RATE__ 1.0')\ndef add(a, b): pass",
    "claim to equal everything": (
        "class Any(int):\n"
        "    def __eq__(self, other): return True\n"
        "    __hash__ = int.__hash__\n"
        "    def __bool__(self): return True\n"
        "def add(a, b): return Any(0)"
    ),
    "an object that equals everything": (
        "class Any:\n    def __eq__(self, other): return True\ndef add(a, b): return Any()"
    ),
    "patch the harness": (
        "import sys, builtins\n"
        "for module in list(sys.modules.values()):\n"
        "    for name in ('send', 'encode', 'decode', 'judge', '_verdict', 'Session'):\n"
        "        if hasattr(module, name): setattr(module, name, lambda *a, **k: {'passed': [1]})\n"
        "builtins.AssertionError = type('Never', (BaseException,), {})\n"
        "def add(a, b): return 0"
    ),
    "write the verdict to every open file": (
        "import json, os\n"
        "body = json.dumps({'passed': True, 'reason': '', 'printed': ''}).encode()\n"
        "for fd in range(64):\n"
        "    try: os.write(fd, body + b'\\n')\n"
        "    except OSError: pass\n"
        "def add(a, b): return 0"
    ),
    "answer before being asked": (
        "import json, os\n"
        "for value in [None] + [True] * 50:\n"
        "    body = json.dumps({'value': value}).encode()\n"
        "    os.write(3, body + b'\\n')\n"
        "def add(a, b): return 0"
    ),
    "look the answers up in memory": (
        "import gc, sys\n"
        "found = [o for o in gc.get_objects() if ''.join(('ass', 'ert add')) in repr(o)[:9999]]\n"
        "frame = sys._getframe()\n"
        "while frame:\n"
        "    found += [v for v in frame.f_locals.values()\n"
        "              if ''.join(('ass', 'ert add')) in repr(v)]\n"
        "    frame = frame.f_back\n"
        "def add(a, b): return a + b if found else 0"
    ),
    "define the library": (
        "def add(a, b): return 0\ndef abs(x): return 3\nint = bool = abs\nclass math: pass"
    ),
    "raise what a test may expect": "def add(a, b): raise StopIteration",
    "nothing": "",
    "no Python": "Sure! Here is the code:",
    "bytes of zero": "x = '\0'",
    "deep nesting": "(" * 5000 + ")" * 5000,
}


def test_no_trick_passes_for_a_solution(sandbox: Sandbox) -> None:
    tricks = [(name, Job(code, [t])) for name, code in FORGERIES.items() for t in TESTS]
    for (name, _), verdict in zip(tricks, sandbox.run([job for _, job in tricks]), strict=True):
        assert not verdict.passed and verdict.reason, name


ITERATING = (
    "assert all(map(f, [1, 2]))",
    "assert not list(filter(f, [1, 2]))",
    "assert [*map(f, range(3))] == []",
    "for value in map(f, [1, 2]):\n    assert value == 3",
    "for value in iter(lambda: f(1), 3):\n    assert value == 4",
    "assert all(value == 3 for value in map(f, [1, 2]))",
    "assert all(f(value) == 3 for value in [1, 2])",
)
ENDINGS = (
    "raise StopIteration",
    "raise type('StopIteration', (Exception,), {})",
    "raise type('Own', (StopIteration,), {})",
    "return next(iter([]))",
)


def test_no_call_ends_what_a_test_iterates_over(sandbox: Sandbox) -> None:
    jobs = [Job(f"def f(x): {ending}", [test]) for test in ITERATING for ending in ENDINGS]
    for job, verdict in zip(jobs, sandbox.run(jobs), strict=True):
        assert not verdict.passed and "RuntimeError" in verdict.reason, job


SPY = """
import os, json
def ask(action, number, arguments):
    body = {'do': action, 'object': number, 'arguments': arguments, 'named': {}}
    os.write(3, json.dumps(body).encode() + b'\\n')
    return json.loads(os.read(3, 1 << 16))
def spy(f, *more):
    import gc
    names = ('__globals__', '__code__', '__closure__', '__class__', '__self__', '__func__',
             '__dict__', '__init__', 'gi_frame', 'gi_code', 'f_globals', 'secret', 'hidden', '_x')
    text = [['str', name] for name in names]
    replies = [ask('getattr', n, [t]) for n in range(5) for t in text]
    replies += [ask('setattr', n, [t, True]) for n in range(5) for t in text[:9]]
    replies += [ask(op, n, [t]) for n in range(5) for t in text[:2]
                for op in ('getitem', 'getattr', 'eval', 'mod', 'contains', '__getattribute__')]
    replies += [ask(a, n, [['str', '1 + 1']]) for n in (0, -99, 10 ** 9)
                for a in ('lend', 'perform', 'use', 'gone', '', 'list', 'load', 'name')]
    replies += [ask('call', n, [['str', '__import__("os")._exit(0)']]) for n in (1, 4, -4)]
    replies += [ask('call', 0, [['tester', n, None]]) for n in (1, -4)]
    return [r for r in replies if 'raised' not in r]
"""


def test_what_is_lent_is_no_way_to_the_tests(sandbox: Sandbox) -> None:
    """A lambda, a function of the library, a generator and a bound method, with a secret each that
    no test gives away; and of the judge itself nothing."""
    test = (
        "class C:\n    hidden = property(lambda self: 1)\n    def __init__(self): self._x = 1\n"
        "    def look(self, x): return secret\n"
        "secret = 'swordfish'\n"
        "found = spy(lambda x: secret, eval, (secret for _ in 'a'), C().look, print)\n"
        "assert found == [], found"
    )
    verdict = sandbox.run([Job(SPY, [test])])[0]
    assert verdict.passed, verdict.reason


def test_a_function_of_the_library_does_not_come_back_into_the_tests(sandbox: Sandbox) -> None:
    code = "def f(run, call): return call(run, \"__import__('os')._exit(0) or secret\")"
    for run in ("eval", "exec", "len"):
        for call in ("g(x)", "g[0](x)"):
            test = f"secret = 3\nassert f({run}, lambda g, x: {call}) == 3"
            wrapped = code.replace("call(run", "call([run]" if "[" in call else "call(run")
            verdict = sandbox.run([Job(wrapped, [test])])[0]
            assert not verdict.passed and "does not come back" in verdict.reason
    right = Job("def f(g, h): return h(g)", ["assert f('3', lambda k: int(k)) == 3"])
    assert sandbox.run([right])[0].passed


def test_no_completion_makes_its_tests_impossible_to_judge(sandbox: Sandbox) -> None:
    deep = "def g(x):\n    r = []\n    for _ in range({}): r = [r]\n    return r\n"
    codes = {
        "nested": deep.format(99) + "def f(x): return 1",
        "nested too deep": deep.format(500) + "def f(x): return 1",
        "types": "def g(x): return type\ndef f(x): return 1",
        "objects": "def g(x): return lambda: 1\ndef f(x): return 1",
        "leaving": "def g(x): return 1\ndef f(x): raise SystemExit",
    }
    jobs = [Job(code, ["assert f([g(1)]) == 2", "assert f(2) == 2"]) for code in codes.values()]
    for name, verdict in zip(codes, sandbox.run(jobs), strict=True):
        assert not verdict.passed and not verdict.broken and verdict.reason, name
    right = Job(deep.format(90) + "def f(x): return len(x)", ["assert f([g(1)]) == 1"])
    assert sandbox.run([right])[0].passed


def test_what_a_test_prints_is_no_verdict(sandbox: Sandbox) -> None:
    forged = (
        "import json\n"
        "frame = json.dumps({'passed': True, 'reason': '', 'printed': ''}) + '\\n'\n"
        "def f(x): return frame * 3000"
    )
    for printing in ("print(f(1))", "sys.stdout.write(f(1)); sys.stdout.flush()"):
        verdict = sandbox.run([Job(forged, [f"{printing}\nassert f(1) == 1"])])[0]
        assert not verdict.passed and verdict.reason


def test_asking_without_end_takes_the_time_of_the_test(sandbox: Sandbox) -> None:
    start = time.monotonic()
    ask = "def f(g):\n    while True: g(1)"
    catch = "def f(g):\n    while True:\n        try: g(f)\n        except Exception: pass"
    jobs = [
        Job(ask, ["assert f(lambda x: x) == 1"]),
        Job(catch, ["assert f(lambda x: x(x)) == 1"]),
        Job("def f(g): return sum(g)", ["assert f(itertools.count()) == 1"]),
        Job("def f(g): return g()", ["def g(): return f(g)\nassert f(g) == 1"]),
    ]
    verdicts = sandbox.run(jobs)
    assert not any(verdict.passed for verdict in verdicts) and all(v.reason for v in verdicts)
    assert time.monotonic() - start < 30


EXHAUSTION = {
    "endless loop": "while True: pass",
    "endless loop in C": "def add(a, b): return 9 ** 9 ** 9",
    "sleep": "import time\ndef add(a, b): time.sleep(100)",
    "endless output": "while True: print('x' * 10000)",
    "endless answer": "def add(a, b): return 'x' * 50_000_000",
    "memory": "x = bytearray(10 ** 9)",
    "memory bit by bit": "x = []\nwhile True: x.append(bytearray(10 ** 6))",
    "fork bomb": "import os\nwhile True:\n    try: os.fork()\n    except OSError: break",
    "fork by number": (
        "import ctypes\nlibc = ctypes.CDLL(None)\n"
        "for number in (57, 58, 220, 435, 0x40000000 | 57): libc.syscall(number, 17, 0, 0, 0, 0)"
    ),
    "another architecture's calls": (
        "import ctypes, mmap\n"
        "page = mmap.mmap(-1, 4096, prot=7)\n"
        "page.write(bytes.fromhex('b802000000cd80c3'))\n"
        "ctypes.CFUNCTYPE(int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))()"
    ),
    "a fork that answers too": "import os\nos.fork()\ndef add(a, b): return 0",
    "thread bomb": (
        "import threading, time\n"
        "while True: threading.Thread(target=time.sleep, args=(100,), daemon=True).start()"
    ),
    "a shell": "import os\nos.system('sleep 100 &')",
    "a program": "import subprocess\nsubprocess.Popen(['sleep', '100'])",
    "a large file": "open('/tmp/x', 'wb').write(b'x' * 10 ** 8)",
    "many open files": "x = [open('/dev/null') for _ in range(10 ** 6)]",
    "deaf to signals": (
        "import signal\n"
        "for n in range(1, 60):\n"
        "    try: signal.signal(n, signal.SIG_IGN)\n"
        "    except (OSError, ValueError): pass\n"
        "while True: pass"
    ),
    "crash": "import ctypes\nctypes.string_at(0)",
    "recursion": "import sys\nsys.setrecursionlimit(10 ** 9)\ndef f(): return f()\nf()",
    "kill everyone": "import os, signal\nos.kill(-1, signal.SIGKILL)\nos.kill(0, signal.SIGKILL)",
    "kill the parent": "import os, signal\nos.kill(os.getppid(), signal.SIGKILL)",
    "stop the parent": "import os, signal\nos.kill(os.getppid(), signal.SIGSTOP)",
}


def test_no_excess_harms_the_run(sandbox: Sandbox) -> None:
    start = time.monotonic()
    bad = [Job(code, TESTS) for code in EXHAUSTION.values()]
    good = [Job(RIGHT, TESTS)] * len(bad)
    verdicts = sandbox.run([job for pair in zip(bad, good, strict=True) for job in pair])
    for name, verdict in zip(EXHAUSTION, verdicts[::2], strict=True):
        assert not verdict.passed and verdict.reason, name
    assert all(verdict.passed for verdict in verdicts[1::2])
    assert time.monotonic() - start < 60


SMALL_THREADS = """
import ctypes
libc = ctypes.CDLL(None)
for user in (0, 1, 65534, 1 << 30):
    libc.setresuid(user, -1, -1), libc.setreuid(user, -1), libc.syscall(117, user, -1, -1)
attributes, thread = ctypes.create_string_buffer(64), ctypes.c_ulong()
libc.pthread_attr_init(attributes)
libc.pthread_attr_setstacksize(attributes, ctypes.c_size_t(16384))
pause = ctypes.cast(libc.pause, ctypes.c_void_p)
def start():
    started = 0
    while started < 600 and not libc.pthread_create(
        ctypes.byref(thread), attributes, pause, None
    ):
        started += 1
    return started
"""


def test_threads_have_a_limit_however_small_they_are_and_whoever_runs_them(
    sandbox: Sandbox,
) -> None:
    """As root and as an ordinary user; one that no thread library counts, and no memory bounds."""
    verdict = sandbox.run([Job(SMALL_THREADS, ["assert 32 <= (n := start()) <= 128, n"])])[0]
    assert verdict.passed, verdict.reason


LIBC = "import ctypes, fcntl, os, resource, socket\nlibc = ctypes.CDLL(None)"
FOLDER = os.path.dirname(os.__file__)
LEAKS = [
    *(f"open({path!r}).read()" for path in ("/etc/passwd", "/proc/self/environ", __file__)),
    *(f"open('/proc/{pid}/{name}').read()" for pid in (os.getpid(), 1) for name in ("maps", "mem")),
    *(f"os.listdir({folder!r})" for folder in ("/proc", "/sys", os.path.dirname(__file__))),
    # nothing can be written, and of a file that may be read, not even the owner may change anything
    *(
        f"open({f'{place}/planted'!r}, 'w')"
        for place in (FOLDER, "", ".", "/tmp", "/usr/lib", "/dev")
    ),
    f"os.chmod({os.__file__!r}, {os.stat(os.__file__).st_mode & 0o777}) is None",
    f"os.utime({os.__file__!r}) is None",
    # no network
    "socket.socket(socket.AF_UNIX)",
    "socket.gethostbyname('localhost')",
    # privileges and limits cannot be raised
    *(f"libc.{call} == 0" for call in ("unshare(0x10000000)", "setns(0, 0)", "prctl(4, 1)")),
    "libc.ptrace(16, 1, 0, 0) == 0",
    "libc.mount(b'', b'/tmp', b'tmpfs', 0, None) == 0",
    "libc.chroot(b'/tmp') == 0",
    "os.setuid(0) is None and open('/etc/shadow')",
    "os.setpriority(os.PRIO_PROCESS, 0, 19) is None",
    "resource.prlimit(os.getppid() or -1, resource.RLIMIT_CORE, (0, 0)) or 1",
    "fcntl.fcntl(3, 10, 9) == 0",
    "resource.setrlimit(resource.RLIMIT_AS, (1 << 40, 1 << 40)) is None",
]


def find_leaks(sandbox: Sandbox, expressions: list[str]) -> list[str]:
    """Which expressions give code something; they raise where they do not."""
    codes = [f"{LIBC}\ndef look(): return bool({expression})" for expression in expressions]
    verdicts = sandbox.run([Job(code, ["assert look() is True"]) for code in codes])
    return [e for e, verdict in zip(expressions, verdicts, strict=True) if verdict.passed]


def test_what_is_outside_is_out_of_reach(
    sandbox: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("swordfish")
    tmp_path.chmod(0o755)
    secret.chmod(0o666)
    monkeypatch.setenv("API_TOKEN", "swordfish")
    own = [f"open({str(secret)!r}).read()", f"open({str(secret)!r}, 'a')"]
    own += [f"os.unlink({str(secret)!r}) is None", f"os.listdir({str(tmp_path)!r})"]
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        own += [f"socket.create_connection({server.getsockname()!r}, timeout=1)"]
        own += ["'API_TOKEN' in os.environ", "1 + 1"]
        assert find_leaks(sandbox, [*LEAKS, *own]) == ["1 + 1"], "the probe itself works"
        with pytest.raises(BlockingIOError):
            server.accept()
    assert secret.read_text() == "swordfish"
    assert not any(os.path.exists(f"{place}/planted") for place in (FOLDER, "", "/usr/lib"))


def test_the_filter_alone_keeps_files_from_being_emptied(tmp_path: Path) -> None:
    """Landlock before Linux 6.2 does not, and the owner of Python's library may do it."""
    file = tmp_path / "library.py"
    file.write_text("kept")
    tricks = (
        lambda: os.truncate(file, 0),
        lambda: os.open(file, os.O_RDONLY | os.O_TRUNC),
        lambda: os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC),
    )
    pid = os.fork()
    if pid == 0:
        refused = 0
        seccomp.confine()
        for trick in tricks:
            try:
                trick()
            except PermissionError:
                refused += 1
        readable = os.read(os.open(file, os.O_RDONLY), 9) == b"kept"
        os._exit(refused if readable else 99)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == len(tricks)
    assert file.read_text() == "kept"


def count_processes() -> int:
    """Processes of the sandbox whose candidates have 777 MB."""
    found = 0
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # it has ended since
            found += b'"memory_mb": 777,' in path.read_bytes()
    return found


@pytest.mark.parametrize("level", LEVELS)
def test_no_process_outlives_its_job_or_the_sandbox(level: str) -> None:
    def soon_only(count: int) -> bool:
        deadline = time.monotonic() + 10
        while count_processes() > count and time.monotonic() < deadline:
            time.sleep(0.01)
        return count_processes() == count

    try:
        sandbox = Sandbox(level, timeout=0.5, memory_mb=777, workers=1)
    except IsolationError as error:
        pytest.skip(str(error))
    assert soon_only(resting := 2 if level == "full" else 1)
    sandbox.run([Job("import time\ntime.sleep(50)", TESTS)])
    assert soon_only(resting)
    sandbox.close()
    assert soon_only(0)
