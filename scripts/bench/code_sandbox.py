"""Gold solutions through the code sandbox: how many pass, how fast, and what negated tests do.

    python scripts/bench/code_sandbox.py data=mbpp.jsonl

One JSON line: problems, problems passed, problems per second once warm, and problems of which any
test passes with its assertion negated (none should).
"""

import ast
import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from results import circumstances, report  # noqa: E402

from mmrl.config import check, load_config  # noqa: E402
from mmrl.config.command import Usage, run_command  # noqa: E402
from mmrl.rewards.sandbox.sandbox import Job, Sandbox  # noqa: E402


@dataclass(kw_only=True)
class Config:
    """What to measure."""

    data: str = ""
    """JSONL file with the columns of MBPP: code, test_list, test_setup_code."""
    isolation: str = "full"
    """As the option of the reward `code`."""
    workers: int = 2
    """Programs that run at the same time."""

    def __post_init__(self) -> None:
        check(Path(self.data).is_file(), "data", self.data, "a JSONL file")
        check(self.workers >= 1, "workers", self.workers, "at least 1")


USAGE = Usage("python scripts/bench/code_sandbox.py", __doc__, Config)


def negated(test: str) -> str:
    """The test with the condition of its assertion turned round."""
    tree = ast.parse(test)
    for node in ast.walk(tree):
        if isinstance(node, ast.Assert):
            node.test = ast.UnaryOp(ast.Not(), node.test)
    return ast.unparse(ast.fix_missing_locations(tree))


def jobs(path: str) -> tuple[list[Job], list[Job]]:
    """The jobs of an MBPP file, as they are and with negated tests."""
    rows = [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines()]
    right = [Job(r["code"], r["test_list"], r["test_setup_code"]) for r in rows]
    wrong = [
        Job(j.code, [negated(str(test)) for test in j.tests], j.setup, stop=False) for j in right
    ]
    return right, wrong


def measure(config: Config) -> None:
    """Measure and print."""
    right, wrong = jobs(config.data)
    sandbox = Sandbox(config.isolation, workers=config.workers)
    sandbox.run(right[: 4 * config.workers])
    start = time.perf_counter()
    verdicts = sandbox.run(right)
    seconds = time.perf_counter() - start
    result = {
        "bench": "code_sandbox",
        "isolation": config.isolation,
        "workers": config.workers,
        "problems": len(right),
        "passed": sum(all(verdict.passed) for verdict in verdicts),
        "problems_per_second": round(len(right) / seconds, 1),
        "passed_negated": sum(any(verdict.passed) for verdict in sandbox.run(wrong)),
    }
    report({**result, **circumstances()})


if __name__ == "__main__":
    words = sys.argv[1:]
    sys.exit(run_command(USAGE, words, lambda: measure(load_config(Config, words))))
