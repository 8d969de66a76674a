"""The comparison with recorded verdicts names every difference and explains the known ones."""

import json
from pathlib import Path

import pytest
import yaml

from tests.by_path import load

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "check_recorded_generations.py"
NAMES = ("gsm8k", "math500", "countdown", "sudoku")


def written(tmp_path: Path) -> Path:
    end = "<|eot_id|><|endoftext|>"
    rows = {
        "gsm8k": [
            {"generation": r"\boxed{18}" + end, "ground_truth": 18.0, "correct": True},
            {"generation": r"\boxed{2:00 pm}" + end, "ground_truth": 2.0, "correct": True},
            {"generation": r"\boxed{5}", "ground_truth": None, "correct": False},
        ],
        "math500": [{"generation": r"\boxed{2}", "ground_truth": "16 \\sqrt{3}", "correct": False}],
        "countdown": [
            {"generation": r"\boxed{49 + 55 - 53}", "correct": True}
            | {"ground_truth": [[49, 55, 53], 51]}
        ],
        "sudoku": [
            {"generation": "<answer>4320004330120004</answer>", "ground_truth": "4321124334122134"}
            | {"correct_cells": 1, "empty_cells": 8}
        ],
    }
    for name, cases in rows.items():
        lines = [json.dumps({"question": "4320004330100004", **case}) for case in cases]
        (tmp_path / f"llada_8b_instruct_{name}_256.jsonl").write_text("\n".join(lines))
    return tmp_path


def known(data: Path, kinds: dict) -> Path:
    path = data / "known.yaml"
    path.write_text(yaml.safe_dump({name: kinds.get(name, []) for name in NAMES}))
    return path


@pytest.mark.slow
def test_an_unexplained_difference_and_one_that_is_gone_both_fail(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = load(SCRIPT.parent, SCRIPT.stem)
    data = written(tmp_path)
    assert not script.report(data, known(data, {"countdown": [{"reason": "gone", "rows": [0]}]}))
    printed = capsys.readouterr().out
    assert "gsm8k row 1: ours 0.0, recorded 1.0: NOT EXPLAINED" in printed
    assert "gsm8k: 1 of 2 agree (0.500), 0.500 by box or tag alone" in printed
    assert "1 right ones wrong here, 1 unexplained" in printed
    assert "countdown: explained but no longer different: rows [0]" in printed
    assert script.report(data, known(data, {"gsm8k": [{"reason": "time of day", "rows": [1]}]}))
    printed = capsys.readouterr().out
    assert "gsm8k row 1: ours 0.0, recorded 1.0: time of day" in printed
    assert "sudoku: 1 of 1 agree (1.000), 0 unexplained" in printed
