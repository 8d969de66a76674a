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
        "class Any(int):\n    def __eq__(self, other): return True\n    __hash__ = int.__hash__\n"
        "    def __bool__(self): return True\ndef add(a, b): return Any(0)"
    ),
    "an object that equals everything": (
        "class Any:\n    def __eq__(self, other): return True\ndef add(a, b): return Any()"
    ),
    "patch the harness": (
        "import sys, builtins\nfor module in list(sys.modules.values()):\n"
        "    for name in ('send', 'encode', 'decode', 'judge', '_verdict', 'Session'):\n"
        "        if hasattr(module, name): setattr(module, name, lambda *a, **k: {'passed': [1]})\n"
        "builtins.AssertionError = type('Never', (BaseException,), {})\ndef add(a, b): return 0"
    ),
    "write the verdict to every open file": (
        "import json, os\n"
        "body = json.dumps({'passed': True, 'reason': '', 'printed': ''}).encode()\n"
        "for fd in range(64):\n    try: os.write(fd, body + b'\\n')\n    except OSError: pass\n"
        "def add(a, b): return 0"
    ),
    "answer before being asked": (
        "import json, os\nfor value in [None] + [True] * 50:\n"
        "    body = json.dumps({'value': value}).encode()\n    os.write(3, body + b'\\n')\n"
        "def add(a, b): return 0"
    ),
    "look the answers up in memory": (
        "import gc, sys\n"
        "found = [o for o in gc.get_objects() if ''.join(('ass', 'ert add')) in repr(o)[:9999]]\n"
        "frame = sys._getframe()\nwhile frame:\n    found += [v for v in frame.f_locals.values()\n"
        "              if ''.join(('ass', 'ert add')) in repr(v)]\n    frame = frame.f_back\n"
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
ENDINGS = ("raise StopIteration", "raise type('StopIteration', (Exception,), {})")
ENDINGS += ("raise type('Own', (StopIteration,), {})", "return next(iter([]))")


def test_no_call_ends_what_a_test_iterates_over(sandbox: Sandbox) -> None:
    jobs = [Job(f"def f(x): {ending}", [test]) for test in ITERATING for ending in ENDINGS]
    for job, verdict in zip(jobs, sandbox.run(jobs), strict=True):
        assert not verdict.passed and "RuntimeError" in verdict.reason, job


SPY = """
import json, os
def spy(*functions):
    for action in ('getattr', 'call', 'name', 'load', 'perform', 'next', '__getattribute__'):
        for number in (0, 1, -1, 10 ** 9):
            body = {'do': action, 'object': number, 'data': '', 'arguments': ['secret']}
            os.write(3, json.dumps(body).encode() + b'\\n')
    return 'swordfish' if b'swordfish' in os.read(3, 1 << 16) else []
"""


def test_nothing_can_be_asked_of_the_tests(sandbox: Sandbox) -> None:
    """No answer comes to requests; functions, generators and methods of a test are not sent."""
    test = "secret = 'swordfish'\nclass C:\n    def look(self): return secret\n"
    own = ("lambda: secret", "(secret for _ in 'a')", "C().look", "secret.join", "C", "C()")
    jobs = [Job(SPY, [f"{test}assert spy({each}) == []"]) for each in own]
    assert all("cannot be copied" in verdict.broken for verdict in sandbox.run(jobs))
    jobs = [Job(SPY, [f"{test}assert spy(eval, print) == {value}"]) for value in ([], "secret")]
    assert not any(verdict.passed for verdict in sandbox.run(jobs))


def test_a_library_function_that_comes_back_runs_with_the_candidate(sandbox: Sandbox) -> None:
    code = "def f(run): return run\ndef g(run): return [run]"
    for back in ("f({})", "g({})[0]"):
        for run in ("eval", "exec"):
            call = f"{back.format(run)}(\"__import__('os')._exit(0) or secret\")"
            verdict = sandbox.run([Job(code, [f"secret = 3\nassert {call} == 3"])])[0]
            assert not verdict.passed and "the process ended" in verdict.reason
        right = Job(code, [f"assert {back.format('len')}('abc') == 3"])
        assert sandbox.run([right])[0].passed


FORGED = (
    *('{"value": ' + '["list", [' * depth + "]]" * depth + "}" for depth in (150, 450)),
    *(
        f'{{"value": {value}}}'
        for value in ('["int"]', '["range", [0, 1e400, 1]]', '["x", 1]', "5")
    ),
    '{"value": ["dict", [["list", [["object", 0], true]]]]}',
    *(f'{{"changed": {changed}}}' for changed in ('{"0": 5}', '{"-9": null}', "[1]")),
)
"""Answers that no candidate gives of itself."""


def test_no_completion_makes_its_tests_impossible_to_judge(sandbox: Sandbox) -> None:
    deep = "def g(x):\n    r = []\n    for _ in range({}): r = [r]\n    return r\n"
    codes = {
        "nested": deep.format(99) + "def f(x): return 1",
        "nested too deep": deep.format(500) + "def f(x): return 1",
        "types": "def g(x): return type\ndef f(x): return 1",
        "objects": "def g(x): return lambda: 1\ndef f(x): return 1",
        "leaving": "def g(x): return 1\ndef f(x): raise SystemExit",
    }
    for forged in FORGED:
        write = f"os.write(3, {forged!r}.encode() + b'\\n'); time.sleep(0.5)"
        codes[forged[:60]] = f"import os, time\ndef g(x): {write}\ndef f(x): return 1"
    jobs = [Job(code, ["assert f([g(1)]) == 2", "assert f(2) == 2"]) for code in codes.values()]
    for name, verdict in zip(codes, sandbox.run(jobs), strict=True):
        assert not verdict.passed and not verdict.broken and verdict.reason, name
    right = Job(deep.format(90) + "def f(x): return len(x)", ["assert f([g(1)]) == 1"])
    assert sandbox.run([right])[0].passed


def test_what_a_test_prints_is_no_verdict(sandbox: Sandbox) -> None:
    forged = (
        "import json\nframe = json.dumps({'passed': True, 'reason': '', 'printed': ''}) + '\\n'\n"
        "def f(x): return frame * 3000"
    )
    for printing in ("print(f(1))", "sys.stdout.write(f(1)); sys.stdout.flush()"):
        verdict = sandbox.run([Job(forged, [f"{printing}\nassert f(1) == 1"])])[0]
        assert not verdict.passed and verdict.reason


def test_asking_without_end_takes_the_time_of_the_test(sandbox: Sandbox) -> None:
    start = time.monotonic()
    jobs = [
        Job("def f(x): return 1", ["while f(1) == 1: assert True is True"]),
        Job("def f(x):\n    while True: yield x", ["assert list(f(1))"]),
        Job("import os\ndef f(x):\n    while True: os.write(3, b'x' * 99)", ["assert f(1) == 1"]),
        Job("import os\ndef f(x): os.read(3, 9)", ["assert f(1) == 1"]),
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
        "import ctypes, mmap\npage = mmap.mmap(-1, 4096, prot=7)\n"
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
        "import signal\nfor n in range(1, 60):\n    try: signal.signal(n, signal.SIG_IGN)\n"
        "    except (OSError, ValueError): pass\nwhile True: pass"
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


def test_threads_have_a_limit_however_small_and_whoever_runs_them(sandbox: Sandbox) -> None:
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
