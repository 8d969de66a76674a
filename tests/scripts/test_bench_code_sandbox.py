"""The sandbox benchmark counts what passes, and what passes with negated assertions."""

import json
from pathlib import Path

import pytest

from mmrl.rewards.sandbox.sandbox import IsolationError
from tests.by_path import load

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "bench" / "code_sandbox.py"


@pytest.mark.slow
def test_it_counts_gold_solutions_and_negated_tests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)  # where it keeps its results
    monkeypatch.syspath_prepend(str(SCRIPT.parent))
    rows = [
        {"code": "def f(x): return x", "test_list": ["assert f(1) == 1"], "test_setup_code": ""},
        {"code": "def f(x): return 2", "test_list": ["assert f(1) == 1"], "test_setup_code": ""},
    ]
    data = tmp_path / "mbpp.jsonl"
    data.write_text("\n".join(map(json.dumps, rows)))
    bench = load(SCRIPT.parent, SCRIPT.stem)
    try:
        bench.measure(bench.Config(data=str(data), workers=1))
    except IsolationError as error:
        pytest.skip(str(error))
    result = json.loads(capsys.readouterr().out)
    assert result["problems"] == 2 and result["passed"] == 1 and result["passed_negated"] == 1
    assert result["problems_per_second"] > 0
