"""The code reward: kinds of tests, credit, and what counts as a program."""

from typing import Any

import pytest

from mmrl.rewards import PartialFailure
from mmrl.rewards.code import CodeReward
from mmrl.rewards.sandbox.sandbox import IsolationError
from mmrl.rewards.scoring.failures import RewardError
from mmrl.rewards.scoring.scorer import Scorer
from mmrl.types import Sample

TESTS = ["assert inc(1) == 2", "assert inc(2) == 3", "assert inc(-1) == 0"]


def block(code: str) -> str:
    return f"```python\n{code}\n```"


RIGHT = "Add one.\n" + block("def inc(x):\n    return x + 1") + "\nDone."
HALF = RIGHT.replace("x + 1", "abs(x) + 1")
WRONG = block("def inc(x):\n    return 0\nprint('wrong')")


def build(**options: Any) -> CodeReward:
    try:
        return CodeReward(timeout=5.0, **options)
    except IsolationError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def reward() -> CodeReward:
    return build()


@pytest.fixture(scope="module")
def sharing() -> CodeReward:
    return build(partial=True)


# A gold solution of MBPP, with the line ends and tabs of that set.
GOLD = block(
    "R = 3\r\nC = 3\r\ndef min_cost(cost, m, n): \r\n\ttc = [[0 for x in range(C)] for x in "
    "range(R)] \r\n\ttc[0][0] = cost[0][0] \r\n\tfor i in range(1, m+1): \r\n\t\ttc[i][0] = "
    "tc[i-1][0] + cost[i][0] \r\n\tfor j in range(1, n+1): \r\n\t\ttc[0][j] = tc[0][j-1] + "
    "cost[0][j] \r\n\tfor i in range(1, m+1): \r\n\t\tfor j in range(1, n+1): \r\n\t\t\t"
    "tc[i][j] = min(tc[i-1][j-1], tc[i-1][j], tc[i][j-1]) + cost[i][j] \r\n\treturn tc[m][n]"
)
COST = "assert min_cost([[1, 2, 3], [4, 8, 2], [1, 5, 3]], 2, 2) == 8"
READS = block("print(sum(map(int, input().split())))")
PRINTS = block("n = int(input())\nprint(n + 1 if n < 5 else 0, end=' \\n\\n')")
PAIRS = [{"input": "1\n", "output": "2"}, {"input": "4", "output": "5\n"}]
NOTHING = [{"input": "", "output": ""}]
CALL = "def check(candidate):\n    assert candidate(1) == 2\n"
ROOT = block("def root(x: List[int]): return [sqrt(v) for v in x]")
IMPORTS = "from typing import List\nfrom math import sqrt"
FUTURE = block("from __future__ import annotations\nprint(three)")
DROP = "def drop(xs, kind): return [x for x in xs if not isinstance(x, kind)]"
FOLD = (
    "def plus(a, b): return a + b\ndef fold(f, xs, start):\n"
    "    for x in xs: start = f(start, x)\n    return start"
)
HUMANEVAL = (
    "METADATA = {'author': 'x'}\n\n\ndef check(candidate):\n"
    "    import operator, random\n    from copy import deepcopy\n    rng = random.Random(42)\n"
    "    assert candidate(operator.add, range(4), 0) == 6\n"
    "    for _ in range(10):\n        xs = [rng.randint(0, 9) for _ in range(5)]\n"
    "        assert candidate(max, deepcopy(xs), -1) == max(xs)\n"
    "        assert candidate(plus, tuple(xs), 0) == sum(xs)\n"
)
"""A check with functions, chance, and a function beside the one under test."""
CASES: list[tuple[str, Any, dict[str, str], float, float]] = [
    # completion, tests, what else is in the metadata, score, share
    (RIGHT, TESTS, {}, 1.0, 1.0),
    (HALF, TESTS, {}, 0.0, 2 / 3),
    (RIGHT.replace("return", "x == 1 and exit()\n    return"), TESTS, {}, 0.0, 2 / 3),
    (GOLD, [COST], {}, 1.0, 1.0),
    (GOLD, [COST.replace("==", "!=")], {}, 0.0, 0.0),
    (PRINTS, PAIRS, {}, 1.0, 1.0),
    (PRINTS, [*PAIRS, {"input": "7", "output": "8"}], {}, 0.0, 2 / 3),
    (PRINTS.replace("\n```", "\nraise ValueError\n```"), PAIRS[:1], {}, 0.0, 0.0),
    (block("import sys\nsys.stdout.close()"), PAIRS[:1], {}, 0.0, 0.0),
    (block("import os\nos.write(1, os.read(0, 9))"), [{"input": "ü", "output": "ü"}], {}, 1.0, 1.0),
    (RIGHT, [{"input": [1], "output": 2}], {"entry_point": "inc"}, 1.0, 1.0),
    (HALF, [{"input": [-1], "output": 0}], {"entry_point": "inc"}, 0.0, 0.0),
    (RIGHT, CALL, {"entry_point": "inc"}, 1.0, 1.0),
    (ROOT, ["assert root([4]) == [2]"], {"setup": IMPORTS}, 1.0, 1.0),
    (ROOT, ["assert root([4]) == [2]"], {}, 0.0, 0.0),
    (ROOT, ["assert root([9]) == [3] == y"], {"setup": f"{IMPORTS}\ny = root([9])"}, 1.0, 1.0),
    (FUTURE, [{"input": "", "output": "3"}], {"setup": "three = 3"}, 1.0, 1.0),
    (block(DROP), ["assert drop((4, 'a', 1.2), str) == [4, 1.2]"], {}, 1.0, 1.0),
    (block(DROP[:-4]), ["assert drop((4, 'a', 1.2), str) == [4, 1.2]"], {}, 0.0, 0.0),
    (block(FOLD), HUMANEVAL, {"entry_point": "fold"}, 1.0, 1.0),
    (block(FOLD.replace("f(start, x)", "x")), HUMANEVAL, {"entry_point": "fold"}, 0.0, 0.0),
    *(
        (text, tests, {}, 0.0, 0.0)
        for text in ("", "   ", "I cannot.", RIGHT[: RIGHT.rindex("```")])
        for tests in (TESTS, NOTHING)
    ),
]
METHOD = block("class Solution:\n    def inc(self, x): return x + 1")
FORMS: dict[str, tuple[str, Any]] = {
    "APPS": (READS, '{"inputs": ["3 4\\n", "1 1"], "outputs": ["7\\n", "2"]}'),
    "APPS with lines": (READS, {"inputs": [["3 4", ""]], "outputs": [["7"]]}),
    "a list of such texts": (READS, ['{"inputs": ["3 4"], "outputs": ["7"]}'] * 2),
    "CodeContests": (READS, {"input": ["3 4"], "output": ["7"]}),
    "JSON text of pairs": (READS, '[{"input": "3 4", "output": "7"}]'),
    "TACO": (RIGHT, '{"fn_name": "inc", "inputs": [[1], [5]], "outputs": [[2], [6]]}'),
    "PRIME": (RIGHT, '{"fn_name": "inc", "inputs": ["1", "5"], "outputs": ["2", "6"]}'),
    "a method of Solution": (METHOD, {"fn_name": "inc", "inputs": [[1]], "outputs": [2]}),
    "JSON text of assertions": (RIGHT, '["assert inc(1) == 2"]'),
    "a test that is called": (RIGHT, "def test(f):\n    assert f(1) == 2\ntest(inc)"),
    "prepared before": (RIGHT, ["import math", "two = math.sqrt(4)", "assert inc(1) == two"]),
    "raised": (RIGHT, "if inc(1) != 2:\n    raise ValueError('no')"),
}
VOID = (
    ["# a comment", "inc(1) == 2", "assert True", "assert (inc(1) == 2, 'two')"]
    + ["assert 1 == 1", "print(inc(1))", "def helper():\n    assert inc(1) == 2"]
    + ["def test_inc():\n    inc(1) == 2"]
    + ["def test_inc():\n    def inner():\n        assert inc(1) == 2"]
    + ["async def test_inc():\n    assert inc(1) == 2"]
    + ["def test_inc(number):\n    assert inc(number) == 2"]
    + ["class TestInc:\n    def test_one(self): assert inc(1) == 2"]
    + ["class Inc(unittest.TestCase):\n    def one(self): self.assertEqual(inc(1), 2)"]
    + ["import numpy as np\nassert np.isclose(inc(1), 2)"]
    + ["import pytest\ndef test_inc():\n    with pytest.raises(ValueError):\n        inc('a')"]
    + ["from solution import inc as plus\nassert plus(1) == 2", "assert inc(1) =="]
    + ["return inc(1)", CALL, '{"fn_name": "inc", "inputs": [[1]], "outputs": [[2], [3]]}']
    + ['{"fn_name": "inc", "inputs": [1], "outputs": [2]}', '{"inputs": [], "outputs": []}']
    + ['{"inputs": ["1"], "outputs": [2]}', '{"cases": 3}', "[]", "", 1, {"input": "1"}]
    + [{"input": "1", "output": 2}, {"input": [1], "output": 2}]
)


def sample(completion: str, tests: Any, **metadata: str) -> Sample:
    return Sample("task", completion, {"tests": tests, **metadata})


def test_programs_get_all_or_none_or_their_share(reward: CodeReward, sharing: CodeReward) -> None:
    samples = [sample(text, tests, **more) for text, tests, more, _, _ in CASES]
    assert reward(samples) == [score for *_, score, _ in CASES]
    assert sharing(samples) == pytest.approx([share for *_, share in CASES])
    assert reward([]) == sharing([]) == [] and sharing([Sample("no tests", RIGHT)]) == [None]
    for each in samples:
        reward.check(each.metadata)


def test_tests_in_the_forms_of_data_sets_are_run(reward: CodeReward, sharing: CodeReward) -> None:
    right = [sample(program, tests) for program, tests in FORMS.values()]
    wrong = [sample(WRONG, tests) for _, tests in FORMS.values()]
    assert reward(right) == [1.0] * len(FORMS) and reward(wrong) == [0.0] * len(FORMS)
    alone = [each for name, each in zip(FORMS, right, strict=True) if name != "prepared before"]
    assert sharing(alone) == [1.0] * len(alone)
    for each in right:
        reward.check(each.metadata)
    reward.check({})


def test_tests_that_test_nothing_or_cannot_be_run_are_refused_when_read_and_when_scored(
    reward: CodeReward, sharing: CodeReward
) -> None:
    for own, forms in ((reward, VOID), (reward, [[test] for test in VOID]), (sharing, VOID)):
        for tests in forms:
            with pytest.raises(ValueError):
                own.check({"tests": tests})
        with pytest.raises(PartialFailure) as failure:
            own([sample(WRONG, tests) for tests in forms])
        assert all(isinstance(result, ValueError) for result in failure.value.results)
    for extra in (*VOID[:3], {"input": "1", "output": "2"}):
        with pytest.raises(ValueError, match="no assertion that runs|must be a list of assertions"):
            sharing.check({"tests": [*TESTS, extra]})
    with pytest.raises(ValueError, match="do not compile"):
        reward.check({"tests": TESTS, "setup": "import"})


def test_numbers_may_be_written_differently_where_that_is_asked_for(reward: CodeReward) -> None:
    code = block("print(' 0.50 1e3\\nyes 0.50')")
    outputs = ["0.5 1000\nyes 0.50\n", "0.5 1001\nyes 0.50", "0.5 1000\nyes 0.5", "0.5 1000"]
    samples = [sample(code, [{"input": "", "output": output}]) for output in outputs]
    assert reward(samples) == [0.0] * 4
    assert build(match="numbers")(samples) == [1.0, 0.0, 0.0, 0.0]


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
