"""The process in which math-verify runs. `mmrl.rewards.parsing.verifier` starts it by path and may
kill it.

Reads JSON lines `[gold, answer]` and answers each with the line `true` or `false`. The kernel ends
the process when a comparison exceeds its processor time, even within C code. The limit is not
wall-clock time, so a loaded machine changes no verdict.
"""

import json
import logging
import os
import resource
import signal
import sys

MEMORY_BYTES = 4 << 30


def compare(gold: str, answer: str) -> bool:
    """Whether math-verify takes `answer` for the same value as `gold`; LaTeX or plain text."""
    from math_verify import verify

    # Gold first: an equation or interval in the reference may be answered by its bare value, not
    # the other way round.
    return bool(verify(_parse(gold), _parse(answer), timeout_seconds=0))


def _parse(text: str) -> list:
    from math_verify import ExprExtractionConfig, LatexExtractionConfig, parse

    rules = [LatexExtractionConfig(boxed_match_priority=0), ExprExtractionConfig()]
    return parse(f"\\boxed{{{text}}}", extraction_config=rules, parsing_timeout=0)


def main(cpu_seconds: float) -> None:
    """Answer requests until the standard input closes."""
    # The replies keep the old standard output to themselves; anything printed goes to stderr.
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    logging.disable(logging.WARNING)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    compare("\\frac{1}{2}", "0.5")
    print("ready", file=replies, flush=True)
    for line in sys.stdin:
        gold, answer = json.loads(line)
        signal.setitimer(signal.ITIMER_PROF, cpu_seconds)
        verdict = compare(gold, answer)
        signal.setitimer(signal.ITIMER_PROF, 0)
        print(json.dumps(verdict), file=replies, flush=True)


if __name__ == "__main__":
    main(float(sys.argv[1]))
