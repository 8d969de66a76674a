"""LiveCodeBench's official rows: programs and methods, public and private tests."""

import base64
import functools
import json
import pickle
import zlib
from pathlib import Path
from typing import Any

import pytest

from mmrl.config import ConfigError
from mmrl.data import livecodebench
from mmrl.data.prompts import DataConfig, load_prompts
from mmrl.rewards import build_reward
from mmrl.types import Prompt, Sample

PROGRAM = (
    {"question_title": "Sum", "question_content": "Print the sum of two numbers."}
    | {"platform": "atcoder", "question_id": "abc1_a", "contest_id": "abc1"}
    | {"contest_date": "2024-01-01T00:00:00", "starter_code": "", "difficulty": "easy"}
    | {"public_test_cases": json.dumps([{"input": "1 2\n", "output": "3\n", "testtype": "stdin"}])}
    | {"private_test_cases": "[]", "metadata": "{}"}
)
METHOD = {
    **PROGRAM,
    "question_id": "3000",
    "question_content": "Return the two numbers in order.",
    "starter_code": "class Solution:\n    def order(self, a: int, b: List[int]) -> List[int]:\n",
    "public_test_cases": json.dumps(
        [{"input": "2\n[1]", "output": "[1, 2]", "testtype": "functional"}]
    ),
    "metadata": json.dumps({"func_name": "order"}),
}
ORDER = "class Solution:\n    def order(self, a: int, b: List[int]):\n        return {}"


def hide(cases: Any) -> str:
    """Private tests as the official data has them."""
    return base64.b64encode(zlib.compress(pickle.dumps(json.dumps(cases)))).decode()


def read(folder: Path, row: dict[str, Any], **data: Any) -> Prompt:
    (folder / "rows.jsonl").write_text(json.dumps(row) + "\n", encoding="utf-8")
    config = DataConfig(format="livecodebench", **data)
    (prompt,) = load_prompts(str(folder / "rows.jsonl"), "text", config)
    return prompt


@functools.cache
def code_reward() -> Any:
    return build_reward({"name": "code", "isolation": "process"})


def score(prompt: Prompt, code: str) -> float | None:
    return code_reward()([Sample(prompt.text, f"```python\n{code}\n```", prompt.facts)])[0]


def test_a_program_must_pass_public_and_private_tests(tmp_path: Path) -> None:
    private = hide([{"input": "-5 2\n", "output": "-3\n", "testtype": "stdin"}])
    prompt = read(tmp_path, {**PROGRAM, "private_test_cases": private})
    assert len(prompt.metadata["tests"]) == 2 and prompt.id == "abc1_a"
    assert score(prompt, "print(sum(map(int, input().split())))") == 1.0
    assert score(prompt, "a, b = map(int, sys.stdin.readline().split())\nprint(a + b)") == 1.0
    assert score(prompt, "print(abs(sum(map(int, input().split()))))") == 0.0


def test_a_method_is_called_on_a_solution_with_the_usual_imports(tmp_path: Path) -> None:
    case = {"input": "7\n[9]", "output": "[7, 9]", "testtype": "functional"}
    prompt = read(tmp_path, {**METHOD, "private_test_cases": hide([case])})
    assert prompt.metadata["entry_point"] == "Solution.order"
    assert score(prompt, ORDER.format("sorted([a, *b])")) == 1.0
    assert score(prompt, ORDER.format("tuple(sorted([a, *b]))")) == 1.0
    assert score(prompt, ORDER.format("[*b, a]")) == 0.0
    assert score(prompt, "Solution = 3") == score(prompt, "class Solution: pass") == 0.0


def test_the_hint_has_the_starter_code_or_asks_for_a_program(tmp_path: Path) -> None:
    words = {"template": "{prompt}\n{hint}"}
    assert METHOD["starter_code"] in read(tmp_path, METHOD, **words).text
    assert "input()" in read(tmp_path, PROGRAM, **words).text


class Dangerous:
    """Runs something when it is unpickled."""

    def __reduce__(self) -> Any:
        return (print, ("loaded",))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"private_test_cases": "not base64!"}, "private_test_cases is neither JSON nor"),
        ({"private_test_cases": hide([])[:-8]}, "private_test_cases is neither JSON nor"),
        ({"public_test_cases": "[1]"}, "public_test_cases is no list of tests"),
        ({"public_test_cases": "[]"}, r"the tests have the types \[\]"),
        ({"metadata": "{}"}, "tests need its func_name"),
        ({"metadata": '{"func_name": "a.b"}'}, "tests need its func_name"),
    ],
)
def test_rows_without_tests_are_refused(tmp_path: Path, changes: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read(tmp_path, {**METHOD, **changes})


def test_private_tests_that_unpack_to_too_many_bytes_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(livecodebench, "LONGEST", 1000)
    row = {**PROGRAM, "private_test_cases": hide(["a" * 2000])}
    with pytest.raises(ConfigError, match="more than 1,000 bytes"):
        read(tmp_path, row)


def test_a_pickle_that_is_more_than_a_text_is_refused_and_not_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    refused = "nothing in it was run"
    values = {"": Dangerous()} | {f"the pickle of a {type(v).__name__}": v for v in (["text"], {})}
    for message, value in values.items():
        data = base64.b64encode(zlib.compress(pickle.dumps(value))).decode()
        with pytest.raises(ConfigError, match=message or refused):
            read(tmp_path, {**PROGRAM, "private_test_cases": data})
    assert capsys.readouterr().out == ""
