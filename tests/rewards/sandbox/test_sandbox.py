"""The sandbox: what tests can say, what a solution may do, how limits and machines are told."""

import os
from collections.abc import Iterator

import pytest

from mmrl.rewards.sandbox.jail import seccomp
from mmrl.rewards.sandbox.sandbox import IsolationError, Job, Sandbox, SandboxError

LEVELS = ("full", "process")


@pytest.fixture(scope="module", params=LEVELS)
def sandbox(request: pytest.FixtureRequest) -> Iterator[Sandbox]:
    try:
        sandbox = Sandbox(request.param, timeout=20.0, workers=2)
    except IsolationError as error:
        pytest.skip(str(error))
    yield sandbox
    sandbox.close()


SAME = "def f(x): return x"
CALL = {"input": [1], "output": 1}
CHECK = "def check(candidate):\n    assert candidate(1) == 2\n"
NODE = "class Node:\n    def __init__(self, v): self.v, self.left = v, None\n"
DEPTH = "def depth(n): return 0 if n is None else 1 + depth(n.left)"
ROOT = "root = Node(1)\nroot.left = Node(2)"
VERDICTS: dict[str, tuple[Job, bool]] = {
    "a setup uses the solution": (Job(NODE + DEPTH, ["assert depth(root) == 2"], ROOT), True),
    "a check that fails": (Job(SAME, [CHECK], entry_point="f"), False),
    "a check of a builtin's name": (Job("def sum(x): return 2", [CHECK], entry_point="sum"), True),
    "a call": (Job(SAME, [CALL], entry_point="f"), True),
    "one wrong call": (Job(SAME, [CALL, {"input": [1], "output": 2}], entry_point="f"), False),
    "a call of nothing": (Job(SAME, [CALL], entry_point="g"), False),
    "no builtin in its place": (Job("x = 1", ["assert sum([1, 2]) == 3"]), False),
    "the second test fails": (Job(SAME, ["assert f(1) == 1", "assert f(1) == 0"]), False),
}


SOLUTIONS: dict[str, tuple[str, list[str]]] = {
    "every kind of value": (
        "def same(x): return x",
        [
            f"assert same({value}) == {value}"
            for value in (
                "[1, (2.5, None), {'a': {3}}, b'x', True]",
                "{(1, 2): frozenset({3}), frozenset({4}): 1}",
                "(10 ** 5000, -0.1, float('inf'), 2 + 3j)",
                "(deque([1, 2]), Counter('aab'), OrderedDict(a=1))",
                "(Fraction(1, 3), Decimal('0.1'), datetime(2020, 1, 2), range(3), 'ü\\ud800')",
            )
        ]
        + ["assert same(float('nan')) != 0", "assert type(same((1,))) is tuple"],
    ),
    "a function named like a builtin": ("def sum(a, b): return a * b", ["assert sum(3, 4) == 12"]),
    "a function named like a library's, inside a builtin": (
        "def permutations(xs):\n    return [xs, xs[::-1]]",
        ["assert sorted(permutations([1, 2])) == sorted([[1, 2], [2, 1]])"],
    ),
    "a function named like a builtin, inside another": (
        "def sum(a, b): return a * b",
        ["assert str(sum(3, 4)) == str(int('12'))"],
    ),
    "a function that is handed over": (
        "def even(x): return x % 2 == 0",
        ["assert all(map(even, [2, 4]))", "assert list(filter(even, [1, 2])) == [2]"],
    ),
    "comparison by the library": (
        "def half(x): return x / 2",
        ["assert math.isclose(half(3), 1.5)", "assert abs(half(3) - 1.5) < 1e-9"],
    ),
    "iterators and objects": (
        "class P:\n    def __init__(self, x): self.x = [x]\n"
        "    def twice(self): return self.x * 2\n"
        "def squares(n):\n    for k in range(n): yield k * k\ndef make(x): return P(x)",
        [
            "assert list(squares(4)) == [0, 1, 4, 9]",
            "assert make(5).twice() == [5, 5] and make(5).x[0] == 5",
            "p = make(1)\np.x = 7\nassert p.x == 7",
        ],
    ),
    "arguments changed in place": (
        "def order(x): x.sort()\ndef put(d, k): d[k] = 1",
        [
            "x = [3, 1, 2]\nassert order(x) is None\nassert x == [1, 2, 3]",
            "d = {}\nput(d, 'a')\nassert d == {'a': 1}",
        ],
    ),
    "exceptions": (
        "def fail(): raise ValueError('no')\nclass Own(Exception): pass\ndef own(): raise Own",
        [
            "try:\n    fail()\nexcept ValueError as error:\n    assert 'no' in str(error)\n"
            "else:\n    assert False",
            "try:\n    own()\nexcept RuntimeError:\n    pass\nelse:\n    assert False",
        ],
    ),
    "printing, threads and files of its own": (
        "import threading\ndef work():\n    print('noise' * 9999)\n    out = []\n"
        "    t = threading.Thread(target=out.append, args=(1,))\n    t.start(); t.join()\n"
        "    return out",
        ["assert work() == [1]"],
    ),
}
HANDED_OVER: dict[str, tuple[str, list[str]]] = {
    "types": (
        "def drop(xs, kind): return tuple(x for x in xs if not isinstance(x, kind))\n"
        "def same(x): return x",
        [
            "assert drop((4, 5, 4, 7.7, 1.2), int) == (7.7, 1.2)",
            "assert drop([1, 'a', None], (str, type(None))) == (1,)",
            "assert drop([Fraction(1, 2), 3], Fraction) == (3,)",
        ],
    ),
    "functions of the library": (
        "def apply(f, xs): return [f(x) for x in xs]\n"
        "def order(xs, key): return sorted(xs, key=key)\n"
        "def name(f): return f.__name__ if callable(f) else ''",
        [
            "assert apply(math.sqrt, (9, 4)) == [3, 2]",
            "assert order(['b', 'A'], str.lower) == ['A', 'b'] and order([3, 1], None) == [1, 3]",
            "assert order([(1, 2), (2, 1)], operator.itemgetter(1)) == [(2, 1), (1, 2)]",
            "assert apply(functools.partial(pow, 2), [3]) == [8] and name(len) == 'len'",
        ],
    ),
    "functions of the program": (
        "def apply(f, xs): return [f(x) for x in xs]\ndef twice(x): return 2 * x",
        ["assert apply(twice, [1]) == [2] and apply(functools.partial(twice), [3]) == [6]"],
    ),
    "objects of the library": (
        "def find(p, s): return p.findall(s)\ndef read(f): return f.read()\n"
        "def days(d): return d.days\ndef part(x, s): return x[s]\ndef order(xs): xs.sort()\n"
        "def draw(rng): return rng.random()\ndef pairs(it): return [(a, b) for a, b in it]\n"
        "def total(it): return sum(it)",
        [
            "import re\nassert find(re.compile('[0-9]+', re.I), 'a1b22') == ['1', '22']",
            "import io\nassert read(io.StringIO('abc')) == 'abc'",
            "assert days(timedelta(days=3)) == 3 and part('abcd', slice(1, 3)) == 'bc'",
            "a, b = timedelta(2), timedelta(1)\nxs = [a, b]\norder(xs)\nassert xs == [b, a]",
            "import random\nassert draw(random.Random(1)) == random.Random(1).random()",
            "assert pairs({1: 2}.items()) == [(1, 2)] and total({3: 4}.values()) == 4",
        ],
    ),
}


def test_solutions_pass_and_wrong_ones_fail_whatever_is_handed_over(sandbox: Sandbox) -> None:
    functions = "drop apply order twice name total pairs find read days part draw"
    wrong = "\n".join(f"def {each}(*x, **y): return 7" for each in functions.split())
    jobs = dict(VERDICTS)
    for name, (code, tests) in (SOLUTIONS | HANDED_OVER).items():
        jobs |= {f"{name}: {test}": (Job(code, [test]), True) for test in tests}
    for name, (_, tests) in HANDED_OVER.items():
        jobs |= {f"wrong {name}: {test}": (Job(wrong, [test]), False) for test in tests}
    verdicts = sandbox.run([job for job, _ in jobs.values()])
    found = zip(jobs.items(), verdicts, strict=True)
    assert not [(name, v.reason) for (name, (_, wanted)), v in found if v.passed != wanted]


def test_tests_that_cannot_run_are_no_zero_and_leave_the_other_jobs_alone(sandbox: Sandbox) -> None:
    own_np = "class np:\n    @staticmethod\n    def allclose(*_): return True\n" + SAME
    own_class = "class Own: pass\n"
    tests = {
        "assert f(1) ==": "the tests do not compile",
        "assert np.allclose([f(2)], [4])": "without importing it",
        f"{own_class}assert f(Own()) == 1": "a class that they define",
        f"{own_class}assert f([Own]) == 1": "a class that they define",
        f"{own_class}assert f(functools.partial(Own)) == 1": "a class that they define",
        f"{own_class}try: f(Own())\nexcept Exception: pass\nassert f(1) == 1": "that they define",
        "assert f(lambda: 1) == 1": "cannot be copied: a function",
        "assert f(x for x in [1]) == 1": "an iterator",
        "assert f([].append) == 1": "a method",
        "assert f(math) == 1": "cannot pickle 'module' object",
    }
    *broken, right = sandbox.run([Job(own_np, [test]) for test in [*tests, "assert f(1) == 1"]])
    assert right.passed and not right.broken
    for verdict, said in zip(broken, tests.values(), strict=True):
        assert said in verdict.broken and not verdict.passed


def test_a_program_reads_and_prints(sandbox: Sandbox) -> None:
    code = "import sys\nfor line in sys.stdin: print(int(line) ** 2)\n"
    big = "".join(f"{n}\n" for n in range(20_000))
    main = "if __name__ == '__main__':\n    print('ü' + input()); exit(0)"
    programs = [Job(code, stdin="2\n3\n"), Job(code, stdin=big), Job(main, stdin="x")]
    programs += [Job("print(1)\nraise ValueError", stdin="")]
    programs += [Job("print(1)\nimport os; os._exit(3)", stdin="")]
    programs += [Job("while True: print('x' * 9999)", stdin="")]
    verdicts = sandbox.run(programs)
    assert verdicts[0].printed == "4\n9\n" and not verdicts[0].reason
    assert verdicts[1].printed.count("\n") == 20_000 and not verdicts[1].reason
    assert verdicts[2].printed == "üx\n" and not verdicts[2].reason
    assert verdicts[3].reason == "exit status 1" and verdicts[4].reason == "exit status 3"
    assert verdicts[5].reason and len(verdicts[5].printed) <= 1 << 20


def test_the_order_of_a_set_is_the_same_in_every_process(sandbox: Sandbox) -> None:
    job = Job("print(list({str(n) for n in range(20)}), hash('x'))", stdin="")
    first = sandbox.run([job, job])
    sandbox.close()
    assert {verdict.printed for verdict in [*first, *sandbox.run([job])]} == {first[0].printed}


def test_a_sandbox_that_dies_is_a_failure_and_the_next_job_has_a_new_one(sandbox: Sandbox) -> None:
    job = Job("def f(): return 1", ["assert f() == 1"])
    for _ in range(2):
        zygote = sandbox._free.get()
        if zygote is not None:
            zygote.kill()
            zygote.wait()
        sandbox._free.put(zygote)
    assert sandbox.run([job, job])[1].passed
    zygote = sandbox._free.get()
    assert zygote is not None and zygote.stdout is not None
    zygote.stdout.close()
    zygote.stdout = open(os.devnull, "rb")  # noqa: SIM115 (closed with the process)
    sandbox._free.put(zygote)
    with pytest.raises(SandboxError, match="the process ended"):
        sandbox.run([job, job])
    assert sandbox.run([job])[0].passed


def test_an_isolation_the_machine_cannot_give_is_refused_with_the_reason() -> None:
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        # A filter that forbids namespaces, as container runtimes set it; children inherit it.
        seccomp.WATCHED.clear()
        for calls in seccomp.REFUSED.values():
            calls.clear()
            calls["unshare"] = 272 if calls is seccomp.REFUSED["x86_64"] else 97
        try:
            seccomp.confine()
            Sandbox("full")
        except IsolationError as error:
            os.write(writer, str(error).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with open(reader) as pipe:
        message = pipe.read()
    os.waitpid(pid, 0)
    assert "isolation: full is not possible on this machine" in message
    assert "unshare: Operation not permitted" in message
    assert "isolation: process" in message and "mode: client" in message
