"""The code reward: kinds of tests, credit, and what counts as a program."""

from collections.abc import Iterator
from typing import Any

import pytest

from mmrl.rewards import PartialFailure, build_reward
from mmrl.rewards.code import CodeReward
from mmrl.rewards.sandbox.sandbox import IsolationError
from mmrl.rewards.scoring.failures import RewardError
from mmrl.rewards.scoring.scorer import Scorer
from mmrl.types import Sample

TESTS = ["assert inc(1) == 2", "assert inc(2) == 3", "assert inc(-1) == 0"]
RIGHT = "Add one.\n```python\ndef inc(x):\n    return x + 1\n```\nDone."
HALF = RIGHT.replace("x + 1", "abs(x) + 1")


@pytest.fixture(scope="module")
def reward() -> Iterator[CodeReward]:
    try:
        reward = CodeReward(timeout=5.0)
    except IsolationError as error:
        pytest.skip(str(error))
    yield reward


@pytest.fixture(scope="module")
def sharing() -> CodeReward:
    try:
        return CodeReward(partial=True, timeout=5.0)
    except IsolationError as error:
        pytest.skip(str(error))


def score(reward: CodeReward, completion: str, tests: Any, **metadata: Any) -> float | None:
    return reward([Sample("task", completion, {"tests": tests, **metadata})])[0]


def test_assertions_give_all_or_nothing_or_their_share(
    reward: CodeReward, sharing: CodeReward
) -> None:
    assert score(reward, RIGHT, TESTS) == score(sharing, RIGHT, TESTS) == 1.0
    assert score(reward, HALF, TESTS) == 0.0
    assert score(sharing, HALF, TESTS) == pytest.approx(2 / 3)
    dying = RIGHT.replace("return", "x == 1 and exit()\n    return")
    assert score(sharing, dying, TESTS) == pytest.approx(2 / 3), "each test has its own process"


def test_a_gold_solution_of_mbpp_passes_and_fails_its_negated_tests(reward: CodeReward) -> None:
    gold = (
        "R = 3\r\nC = 3\r\ndef min_cost(cost, m, n): \r\n\ttc = [[0 for x in range(C)] for x in "
        "range(R)] \r\n\ttc[0][0] = cost[0][0] \r\n\tfor i in range(1, m+1): \r\n\t\ttc[i][0] = "
        "tc[i-1][0] + cost[i][0] \r\n\tfor j in range(1, n+1): \r\n\t\ttc[0][j] = tc[0][j-1] + "
        "cost[0][j] \r\n\tfor i in range(1, m+1): \r\n\t\tfor j in range(1, n+1): \r\n\t\t\t"
        "tc[i][j] = min(tc[i-1][j-1], tc[i-1][j], tc[i][j-1]) + cost[i][j] \r\n\treturn tc[m][n]"
    )
    test = "assert min_cost([[1, 2, 3], [4, 8, 2], [1, 5, 3]], 2, 2) == 8"
    assert score(reward, f"```python\n{gold}\n```", [test]) == 1.0
    assert score(reward, f"```python\n{gold}\n```", [test.replace("==", "!=")]) == 0.0


def test_programs_are_judged_by_what_they_print(reward: CodeReward, sharing: CodeReward) -> None:
    code = "```python\nn = int(input())\nprint(n + 1 if n < 5 else 0, end=' \\n\\n')\n```"
    pairs = [{"input": "1\n", "output": "2"}, {"input": "4", "output": "5\n"}]
    assert score(reward, code, pairs) == 1.0
    pairs.append({"input": "7", "output": "8"})
    assert score(reward, code, pairs) == 0.0
    assert score(sharing, code, pairs) == pytest.approx(2 / 3)
    crash = code.replace("\n```", "\nraise ValueError\n```")
    assert score(reward, crash, pairs[:1]) == 0.0
    assert score(reward, "```python\nimport sys\nsys.stdout.close()\n```", pairs[:1]) == 0.0


def test_numbers_may_be_written_differently_where_that_is_asked_for(reward: CodeReward) -> None:
    code = "```python\nprint(' 0.50 1e3\\nyes 0.50')\n```"
    pairs = [{"input": "", "output": "0.5 1000\nyes 0.50\n"}]
    numbers = CodeReward(match="numbers", timeout=5.0)
    assert (score(reward, code, pairs), score(numbers, code, pairs)) == (0.0, 1.0)
    for other in ("0.5 1001\nyes 0.50", "0.5 1000\nyes 0.5", "0.5 1000"):
        assert score(numbers, code, [{"input": "", "output": other}]) == 0.0
    with pytest.raises(ValueError, match="match is 'digits'; allowed: numbers, text"):
        CodeReward(match="digits")  # type: ignore[arg-type]


def test_calls_and_humaneval_checks_need_their_function_named(reward: CodeReward) -> None:
    calls = [{"input": [1], "output": 2}, {"input": [5], "output": 6}]
    assert score(reward, RIGHT, calls, entry_point="inc") == 1.0
    assert score(reward, HALF, [{"input": [-1], "output": 0}], entry_point="inc") == 0.0
    check = "def check(candidate):\n    assert candidate(1) == 2\n"
    assert score(reward, RIGHT, check, entry_point="inc") == 1.0
    with pytest.raises(PartialFailure, match="together with `entry_point`"):
        score(reward, RIGHT, calls)


def test_a_setup_comes_before_code_and_tests(reward: CodeReward) -> None:
    code = "```python\ndef root(x: List[int]): return [sqrt(v) for v in x]\n```"
    setup = "from typing import List\nfrom math import sqrt"
    assert score(reward, code, ["assert root([4]) == [2]"], setup=setup) == 1.0
    assert score(reward, code, ["assert root([4]) == [2]"]) == 0.0
    script = [{"input": "", "output": "3"}]
    assert score(reward, "```python\nprint(three)\n```", script, setup="three = 3") == 1.0


@pytest.mark.parametrize("completion", ["", "   ", "I cannot.", RIGHT[: RIGHT.rindex("```")]])
def test_a_completion_without_a_finished_program_is_worth_nothing(
    reward: CodeReward, completion: str
) -> None:
    assert score(reward, completion, TESTS) == 0.0
    assert score(reward, completion, [{"input": "", "output": ""}]) == 0.0


def test_scores_keep_their_order_and_samples_without_tests_have_none(reward: CodeReward) -> None:
    samples = [
        Sample("a", RIGHT, {"tests": TESTS}),
        Sample("b", RIGHT, {}),
        Sample("c", "```python\nprint(2)\n```", {"tests": [{"input": "", "output": "2"}]}),
        Sample("d", HALF, {"tests": TESTS}),
    ]
    assert reward(samples) == [1.0, None, 1.0, 0.0]
    assert reward([]) == []


READS = "```python\nprint(sum(map(int, input().split())))\n```"
RUN: dict[str, tuple[str, Any]] = {
    "APPS": (READS, '{"inputs": ["3 4\\n", "1 1"], "outputs": ["7\\n", "2"]}'),
    "APPS with lines": (READS, {"inputs": [["3 4", ""]], "outputs": [["7"]]}),
    "a list of such texts": (READS, ['{"inputs": ["3 4"], "outputs": ["7"]}'] * 2),
    "CodeContests": (READS, {"input": ["3 4"], "output": ["7"]}),
    "JSON text of pairs": (READS, '[{"input": "3 4", "output": "7"}]'),
    "TACO with fn_name": (RIGHT, '{"fn_name": "inc", "inputs": [[1], [5]], "outputs": [[2], [6]]}'),
    "PRIME with fn_name": (
        RIGHT,
        '{"fn_name": "inc", "inputs": ["1", "5"], "outputs": ["2", "6"]}',
    ),
    "a method of Solution": (
        "```python\nclass Solution:\n    def inc(self, x): return x + 1\n```",
        {"fn_name": "inc", "inputs": [[1]], "outputs": [2]},
    ),
    "JSON text of assertions": (RIGHT, '["assert inc(1) == 2"]'),
    "pytest": (RIGHT, "import pytest\ndef test_inc():\n    assert inc(1) == 2\n"),
    "pytest of a file": (
        RIGHT,
        "from solution import inc\ndef test_inc():\n    assert inc(1) == 2",
    ),
    "pytest class": (
        RIGHT,
        "class TestInc:\n    def setup_method(self): self.x = 1\n"
        "    def test_one(self): assert inc(self.x) == 2",
    ),
    "unittest": (
        RIGHT,
        "import unittest\nclass Inc(unittest.TestCase):\n    def setUp(self): self.x = 1\n"
        "    def test_one(self): self.assertEqual(inc(self.x), 2)\n"
        "if __name__ == '__main__':\n    unittest.main()",
    ),
    "in the main of a file": (RIGHT, "if __name__ == '__main__':\n    assert inc(1) == 2"),
    "a test that is called": (RIGHT, "def test(f):\n    assert f(1) == 2\ntest(inc)"),
    "prepared before": (RIGHT, ["import math", "two = math.sqrt(4)", "assert inc(1) == two"]),
    "raised": (RIGHT, "if inc(1) != 2:\n    raise ValueError('no')"),
}
VOID = [
    "# a comment",
    "inc(1) == 2",
    "assert True",
    "assert (inc(1) == 2, 'two')",
    "assert 1 == 1",
    "print(inc(1))",
    "def helper():\n    assert inc(1) == 2",
    "def test_inc():\n    inc(1) == 2",
    "def test_inc():\n    def inner():\n        assert inc(1) == 2",
    "async def test_inc():\n    assert inc(1) == 2",
    "def test_inc(number):\n    assert inc(number) == 2",
    "class Inc(unittest.TestCase):\n    def one(self): self.assertEqual(inc(1), 2)",
    "import numpy as np\nassert np.isclose(inc(1), 2)",
    "import pytest\ndef test_inc():\n    with pytest.raises(ValueError):\n        inc('a')",
    "from solution import inc as plus\nassert plus(1) == 2",
    '{"fn_name": "inc", "inputs": [[1]], "outputs": [[2], [3]]}',
    '{"fn_name": "inc", "inputs": [1], "outputs": [2]}',
    '{"inputs": [], "outputs": []}',
    '{"inputs": ["1"], "outputs": [2]}',
    '{"cases": 3}',
    "[]",
]
WRONG = "```python\ndef inc(x):\n    return 0\nprint('wrong')\n```"


@pytest.mark.parametrize("name", RUN)
def test_tests_in_the_forms_of_data_sets_are_run(
    reward: CodeReward, sharing: CodeReward, name: str
) -> None:
    program, tests = RUN[name]
    reward.check({"tests": tests})
    assert score(reward, program, tests) == 1.0
    assert score(reward, WRONG, tests) == 0.0
    if name != "prepared before":
        assert score(sharing, program, tests) == 1.0


@pytest.mark.parametrize("tests", VOID)
def test_tests_that_test_nothing_are_refused_when_read_and_when_scored(
    reward: CodeReward, sharing: CodeReward, tests: str
) -> None:
    for own, each in ((reward, tests), (reward, [tests]), (sharing, [tests])):
        with pytest.raises(ValueError):
            own.check({"tests": each})
        with pytest.raises(PartialFailure):
            score(own, WRONG, each)


def test_one_test_that_tests_nothing_is_refused_among_others(reward: CodeReward) -> None:
    for test in ("# a comment", "inc(1) == 2", "assert True"):
        with pytest.raises(ValueError, match="no assertion that runs"):
            reward.check({"tests": [*TESTS, test]})
    with pytest.raises(ValueError, match="no output|must be a list"):
        reward.check({"tests": [{"input": [1]}], "entry_point": "inc"})


def test_what_a_setup_defines_is_there_before_the_program(reward: CodeReward) -> None:
    setup = "from math import sqrt\nroot_of = root(4)\nfrom typing import List"
    code = "```python\ndef root(x: List[int]): return sqrt(x)\n```"
    assert score(reward, code, ["assert root(9) == 3 and root_of == 2"], setup=setup) == 1.0
    program = "```python\nfrom __future__ import annotations\nprint(three)\n```"
    pairs = [{"input": "", "output": "3"}]
    assert score(reward, program, pairs, setup="three = 3") == 1.0
    with pytest.raises(PartialFailure, match="do not compile"):
        score(reward, program, pairs, setup="three =")


@pytest.mark.parametrize(
    "tests",
    [
        [],
        [1],
        "",
        ["assert x", {"input": "1", "output": "2"}],
        [{"input": "1"}],
        [{"input": "1", "output": 2}],
    ],
)
def test_malformed_tests_are_a_failure(reward: CodeReward, tests: Any) -> None:
    with pytest.raises(PartialFailure, match="must be a list of assertions"):
        score(reward, RIGHT, tests)
    with pytest.raises(ValueError, match="must be a list of assertions"):
        reward.check({"tests": tests})


def test_tests_that_do_not_compile_are_a_failure(reward: CodeReward) -> None:
    with pytest.raises(PartialFailure, match="do not compile"):
        score(reward, RIGHT, ["assert inc(1) =="])
    check = {"tests": "def check(candidate):\n    assert candidate(1) == 2"}
    with pytest.raises(PartialFailure, match="no entry_point is given to call it with"):
        score(reward, "```python\nx = 1\n```", **check)
    for metadata in ({"tests": ["assert inc(1) =="]}, {"tests": TESTS, "setup": "import"}, check):
        with pytest.raises(ValueError, match="do not compile|no entry_point"):
            reward.check(metadata)


def test_a_row_that_cannot_be_judged_fails_alone_and_is_named_by_its_id(
    reward: CodeReward, sharing: CodeReward
) -> None:
    samples = [
        Sample("a", RIGHT, {"tests": TESTS}, id="mbpp-1"),
        Sample("b", RIGHT, {"tests": ["assert inc(1) =="]}, id="mbpp-2"),
        Sample("c", HALF, {"tests": TESTS}, id="mbpp-3"),
        Sample("d", RIGHT, {"tests": [1]}, id="mbpp-4"),
        Sample("e", RIGHT, {}, id="mbpp-5"),
    ]
    for own, scores in ((reward, [1.0, 0.0]), (sharing, [1.0, pytest.approx(2 / 3)])):
        with pytest.raises(PartialFailure) as failure:
            own(samples)
        found = failure.value.results
        assert [found[0], found[2], found[4]] == [*scores, None]
        assert "do not compile" in str(found[1]) and "list of assertions" in str(found[3])
    entry = {"name": "code", "reward": reward}
    with pytest.raises(RewardError, match=r"2 of 5 samples.*First: mbpp-2: 'b'.*do not compile"):
        Scorer([entry]).score(samples)
    assert Scorer([entry], max_failures=0.5).score(samples).total == [1.0, None, 0.0, None, None]


MBPP_533 = {
    "tests": [
        "assert remove_datatype((4, 5, 4, 7.7, 1.2), int) == [7.7, 1.2]",
        "assert remove_datatype((7, 8, 9, 'SR'), str) == [7, 8, 9]",
        "assert remove_datatype((7, 1.1, 2, 2.2), float) == [7, 2]",
    ]
}
"""Tests that hand over types."""
HUMANEVAL = {
    "entry_point": "fold",
    "tests": (
        "METADATA = {'author': 'x'}\n\n\ndef check(candidate):\n"
        "    import random\n    from copy import deepcopy\n    rng = random.Random(42)\n"
        "    assert candidate(lambda a, b: a + b, (x for x in range(4)), 0) == 6\n"
        "    for _ in range(10):\n        xs = [rng.randint(0, 9) for _ in range(5)]\n"
        "        assert candidate(max, deepcopy(xs), -1) == max(xs)\n"
        "        assert candidate(lambda a, b: plus(a, b), iter(xs), 0) == sum(xs)\n"
    ),
}
"""A check with functions, generators, chance, and a function beside the one under test."""


def test_tests_may_hand_over_types_functions_and_generators(reward: CodeReward) -> None:
    drop = "def remove_datatype(xs, kind): return [x for x in xs if not isinstance(x, kind)]"
    fold = (
        "def plus(a, b): return a + b\ndef fold(f, xs, start):\n"
        "    for x in xs: start = f(start, x)\n    return start"
    )
    for code, metadata in ((drop, MBPP_533), (fold, HUMANEVAL)):
        reward.check(metadata)
        wrong = code.replace("if not", "if").replace("f(start, x)", "x")
        samples = [Sample("p", f"```python\n{c}\n```", metadata) for c in (code, wrong)]
        assert reward(samples) == [1.0, 0.0]


def test_tests_that_can_be_run_pass_the_check(reward: CodeReward) -> None:
    script = [{"input": "1", "output": "2"}]
    for metadata in (
        {},
        {"tests": TESTS},
        {"tests": TESTS[0], "setup": "x = 1"},
        {"tests": script},
    ):
        reward.check(metadata)
    reward.check({"tests": [{"input": [1], "output": 2}], "entry_point": "inc"})


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"isolation": "none"}, "isolation.*none"),
        ({"timeout": 0}, "timeout is 0.0; it must be above 0"),
        ({"workers": -1}, "workers is -1"),
        ({"url": "router:8000"}, "such as http://127.0.0.1:8000"),
    ],
)
def test_wrong_options_are_refused(option: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build_reward({"name": "code", **option})
