"""The sandbox: what tests can say, what a solution may do, how limits and machines are told."""

import os
from collections.abc import Iterator
from typing import Any

import pytest

from rewards.jail import seccomp
from rewards.sandbox import IsolationError, Job, Sandbox, SandboxError

LEVELS = ("full", "process")


@pytest.fixture(scope="module", params=LEVELS)
def sandbox(request: pytest.FixtureRequest) -> Iterator[Sandbox]:
    try:
        sandbox = Sandbox(request.param, timeout=20.0, workers=2)
    except IsolationError as error:
        pytest.skip(str(error))
    yield sandbox
    sandbox.close()


def passed(sandbox: Sandbox, code: str, *tests: Any, **options: Any) -> list[bool]:
    return sandbox.run([Job(code, tests, stop=False, **options)])[0].passed


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
            "try:\n    own()\nexcept RuntimeError:\n    pass",
        ],
    ),
    "printing, threads and files of its own": (
        "import threading\ndef work():\n    print('noise' * 9999)\n    out = []\n"
        "    t = threading.Thread(target=out.append, args=(1,))\n    t.start(); t.join()\n"
        "    return out",
        ["assert work() == [1]"],
    ),
}


@pytest.mark.parametrize("name", SOLUTIONS)
def test_a_solution_passes(sandbox: Sandbox, name: str) -> None:
    code, tests = SOLUTIONS[name]
    verdict = sandbox.run([Job(code, tests, stop=False)])[0]
    assert verdict.passed == [True] * len(tests), verdict.reason


def test_a_setup_may_use_what_the_solution_defines_and_the_other_way_round(
    sandbox: Sandbox,
) -> None:
    node = "class Node:\n    def __init__(self, v): self.v, self.left = v, None\n"
    depth = "def depth(n): return 0 if n is None else 1 + depth(n.left)"
    setup = "root = Node(1)\nroot.left = Node(2)"
    assert passed(sandbox, node + depth, "assert depth(root) == 2", setup=setup) == [True]
    code = "def pairs(x: List[int]): return list(combinations(x, 2))"
    setup = "from typing import List\nfrom itertools import combinations"
    assert passed(sandbox, code, "assert pairs([1, 2]) == [(1, 2)]", setup=setup) == [True]


def test_humaneval_checks_and_calls_with_results_name_their_function(sandbox: Sandbox) -> None:
    code = "def twice(x): return 2 * x\ndef pair(x): return (x, x)"
    check = "def check(candidate):\n    assert candidate(2) == 4\n    assert candidate(3) == {}\n"
    assert passed(sandbox, code, check.format(6), entry_point="twice") == [True]
    assert passed(sandbox, code, check.format(7), entry_point="twice") == [False]
    calls = [{"input": [1], "output": [1, 1]}, {"input": [1], "output": [1, 2]}]
    assert passed(sandbox, code, *calls, entry_point="pair") == [True, False]
    assert passed(sandbox, code, *calls, entry_point="absent") == [False, False]


def test_a_missing_function_does_not_turn_into_a_builtin(sandbox: Sandbox) -> None:
    assert passed(sandbox, "x = 1", "assert sum([1, 2]) == 3") == [False]


def test_every_test_is_judged_unless_the_first_failure_ends_the_job(sandbox: Sandbox) -> None:
    tests = ["assert f(1) == 0", "assert f(1) == 1"]
    assert passed(sandbox, "def f(x): return x", *tests) == [False, True]
    job = Job("def f(x): return x", tests)
    assert sandbox.run([job])[0].passed == [False, False]


@pytest.mark.parametrize(
    "test",
    ["assert f(1) ==", "assert f(lambda x: x) == 1", "class C: pass\nassert f(C()) == 1"],
)
def test_tests_that_cannot_be_run_are_an_error_and_no_zero(sandbox: Sandbox, test: str) -> None:
    with pytest.raises(ValueError, match="do not compile|cannot travel"):
        passed(sandbox, "def f(x): return x", test)


def test_a_program_reads_and_prints(sandbox: Sandbox) -> None:
    code = "import sys\nfor line in sys.stdin: print(int(line) ** 2)\n"
    big = "".join(f"{n}\n" for n in range(20_000))
    main = "if __name__ == '__main__':\n    print('ü' + input()); exit(0)"
    programs = [
        Job(code, kind="script", stdin="2\n3\n"),
        Job(code, kind="script", stdin=big),
        Job(main, kind="script", stdin="x"),
        Job("print(1)\nraise ValueError", kind="script"),
        Job("print(1)\nimport os; os._exit(3)", kind="script"),
    ]
    verdicts = sandbox.run(programs)
    assert verdicts[0].printed == "4\n9\n" and not verdicts[0].reason
    assert verdicts[1].printed.count("\n") == 20_000 and not verdicts[1].reason
    assert verdicts[2].printed == "üx\n" and not verdicts[2].reason
    assert verdicts[3].reason == "exit status 1" and verdicts[4].reason == "exit status 3"


def test_the_order_of_a_set_is_the_same_in_every_process(sandbox: Sandbox) -> None:
    job = Job("print(list({str(n) for n in range(20)}), hash('x'))", kind="script")
    first = sandbox.run([job, job])
    sandbox.close()
    assert {verdict.printed for verdict in [*first, *sandbox.run([job])]} == {first[0].printed}


def test_a_full_sandbox_has_a_folder_to_write_in_and_it_is_bounded() -> None:
    try:
        sandbox = Sandbox("full", output_kb=64, workers=1)
    except IsolationError as error:
        pytest.skip(str(error))
    write = "def f(n):\n    with open('x', 'w') as file: file.write('x' * n)\n    return n"
    tests = ["assert f(10) == 10", "assert f(10 ** 6) == 10 ** 6"]
    assert passed(sandbox, write, *tests) == [True, False]
    sandbox.close()


def test_a_sandbox_that_dies_is_a_failure_and_the_next_job_has_a_new_one(sandbox: Sandbox) -> None:
    job = Job("def f(): return 1", ["assert f() == 1"])
    for _ in range(2):
        zygote = sandbox._free.get()
        if zygote is not None:
            zygote.kill()
            zygote.wait()
        sandbox._free.put(zygote)
    assert sandbox.run([job, job])[1].passed == [True]
    zygote = sandbox._free.get()
    assert zygote is not None and zygote.stdout is not None
    zygote.stdout.close()
    zygote.stdout = open(os.devnull, "rb")  # noqa: SIM115 (closed with the process)
    sandbox._free.put(zygote)
    with pytest.raises(SandboxError, match="the process ended"):
        sandbox.run([job, job])
    assert sandbox.run([job])[0].passed == [True]


def test_an_isolation_the_machine_cannot_give_is_refused_with_the_reason() -> None:
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        # A filter that forbids namespaces, as container runtimes set it; children inherit it.
        seccomp._WATCHED = {key: {} for key in seccomp._WATCHED}
        names = {*seccomp._SHARED, *seccomp._X86_64, *seccomp._AARCH64}
        try:
            seccomp.confine(tuple(names - {"unshare"}))
            Sandbox("full")
        except IsolationError as error:
            os.write(writer, str(error).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with open(reader) as pipe:
        message = pipe.read()
    os.waitpid(pid, 0)
    if not seccomp.supported():
        pytest.skip(message)
    assert "isolation: full is not possible on this machine" in message
    assert "unshare: Operation not permitted" in message
    assert "isolation: process" in message and "`url`" in message
