"""Compare the math, Countdown and Sudoku rewards with recorded verdicts on real generations.

    python scripts/check_recorded_generations.py data=DIR

DIR holds `llada_8b_instruct_{gsm8k,math500,countdown,sudoku}_256.jsonl`: one generation a line with
`question`, `generation`, `ground_truth` and the verdict its publisher's parser gave, `correct` or
`correct_cells`. Prints one line per disagreement and one per file, and ends with status 1 if a
disagreement is not explained in `recorded_generations.yaml` beside this script or an explained one
no longer occurs. Rows without a reference are left out. The publisher's parser of
GSM8K and MATH reads a box or a tag and no last number: of these the agreement without that source
stands beside it, and how many answers it has as right that are wrong here.
"""

from __future__ import annotations

import json
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from mmrl.config import check, load_config  # noqa: E402
from mmrl.config.command import Usage, run_command  # noqa: E402
from mmrl.rewards import build_reward  # noqa: E402
from mmrl.types import Sample  # noqa: E402

KNOWN = Path(__file__).with_name("recorded_generations.yaml")
_SPECIAL = re.compile(r"<\|[a-z_]+\|>")


@dataclass(kw_only=True)
class Config:
    """What to compare."""

    data: str = ""
    """Folder of the recorded generations."""

    def __post_init__(self) -> None:
        check(Path(self.data).is_dir() and self.data != "", "data", self.data, "a folder")


FILES = {"gsm8k": "math", "math500": "math", "countdown": "countdown", "sudoku": "sudoku"}
"""Names of the files, and the reward of each."""
Differences = dict[int, tuple[Any, float]]
"""Per disagreeing row (from 0) our score and the recorded one."""


def read_row(reward: str, row: dict[str, Any]) -> tuple[Sample, float]:
    """What a reward scores of a row, and the recorded score."""
    known = row["ground_truth"]
    if reward == "countdown":
        metadata = dict(zip(("numbers", "target"), known, strict=True))
    elif reward == "sudoku":
        puzzle = re.findall(r"\d{16}", row["question"])[-1]
        metadata = {"puzzle": puzzle, "solution": known}
    else:
        metadata = {"answer": known}
    cells = "correct_cells" in row
    recorded = row["correct_cells"] / row["empty_cells"] if cells else float(row["correct"])
    return Sample(row["question"], _SPECIAL.sub("", row["generation"]), metadata), recorded


def disagreements(path: Path, reward: str, **options: Any) -> tuple[int, Differences]:
    """Number of rows that have a reference, and where scores differ."""
    lines = path.read_text(encoding="utf-8").splitlines()
    samples, recorded = zip(*(read_row(reward, json.loads(line)) for line in lines), strict=True)
    scores = build_reward({"name": reward, **options})(samples)
    pairs = [*zip(scores, recorded, strict=True)]
    count = sum(ours is not None for ours in scores)
    return count, {n: (a, b) for n, (a, b) in enumerate(pairs) if a is not None and a != b}


def agreement(path: Path, reward: str, count: int, found: Differences) -> str:
    """How many rows agree."""
    text = f"{count - len(found)} of {count} agree ({1 - len(found) / count:.3f})"
    if reward != "math":
        return text
    marked = len(disagreements(path, reward, sources=["boxed", "answer"])[1])
    missed = sum(ours < recorded for ours, recorded in found.values())
    return f"{text}, {1 - marked / count:.3f} by box or tag alone, {missed} right ones wrong here"


def report(data: Path, known: Path) -> bool:
    """Print the agreement; whether every disagreement is a known one and every known one occurs."""
    explained = yaml.safe_load(known.read_text(encoding="utf-8"))
    clean = True
    for name, reward in FILES.items():
        path = data / f"llada_8b_instruct_{name}_256.jsonl"
        count, found = disagreements(path, reward)
        reasons = {row: kind["reason"] for kind in explained[name] for row in kind["rows"]}
        for row, (ours, theirs) in found.items():
            reason = reasons.get(row, "NOT EXPLAINED")
            print(f"{name} row {row}: ours {ours}, recorded {theirs}: {reason}")
        gone = sorted(reasons.keys() - found.keys())
        if gone:
            print(f"{name}: explained but no longer different: rows {gone}")
        new = found.keys() - reasons.keys()
        print(f"{name}: {agreement(path, reward, count, found)}, {len(new)} unexplained")
        clean = clean and not new and not gone
    return clean


def main(arguments: list[str]) -> int:
    """Compare what the command line says; return the exit status."""
    usage = Usage("python scripts/check_recorded_generations.py", __doc__, Config)

    def work() -> int:
        return int(not report(Path(load_config(Config, arguments).data), KNOWN))

    return run_command(usage, arguments, work)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
