"""Gold solutions through the code sandbox: how many pass, how fast, and what negated tests do.

python scripts/bench/code_sandbox.py data=mbpp.jsonl [isolation=full] [workers=2]

One JSON line: problems, problems passed, problems per second once warm, and problems of which any
test passes with its assertion negated (none should).
"""

import ast
import json
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from rewards.sandbox import Job, Sandbox


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


def main(data: str, isolation: str = "full", workers: str = "2") -> None:
    """Measure and print."""
    right, wrong = jobs(data)
    sandbox = Sandbox(isolation, workers=int(workers))
    sandbox.run(right[: 4 * int(workers)])
    start = time.perf_counter()
    verdicts = sandbox.run(right)
    seconds = time.perf_counter() - start
    result = {
        "bench": "code_sandbox",
        "isolation": isolation,
        "workers": int(workers),
        "problems": len(right),
        "passed": sum(all(verdict.passed) for verdict in verdicts),
        "problems_per_second": round(len(right) / seconds, 1),
        "passed_negated": sum(any(verdict.passed) for verdict in sandbox.run(wrong)),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main(**dict(argument.partition("=")[::2] for argument in sys.argv[1:]))
