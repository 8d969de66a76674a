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
    from latex2sympy2_extended import NormalizationConfig
    from math_verify import ExprExtractionConfig, LatexExtractionConfig, parse

    # Its units are single letters too, which make 5 of 5t.
    spelling = NormalizationConfig(units=False, malformed_operators=True, nits=True)
    latex = LatexExtractionConfig(boxed_match_priority=0, normalization_config=spelling)
    rules = [latex, ExprExtractionConfig()]
    return parse(f"\\boxed{{{text}}}", extraction_config=rules, parsing_timeout=0)


def _distrust_tolerance() -> None:
    """Have math-verify's numeric comparison, which takes differences below 1e-15 for none and
    rounds decimals to 6 places, agree only where a closer look does: exact without decimals, to
    five digits with them."""
    from math_verify import grader
    from sympy import Expr, Float, Rational

    roughly = grader.sympy_numeric_eq

    def closely(one, other, *limits: int) -> bool:
        if not roughly(one, other, *limits):
            return False
        if not (isinstance(one, Expr) and isinstance(other, Expr)):
            return True
        names = sorted((one - other).free_symbols, key=str)
        point = [(name, Rational(7 + 2 * n, 5)) for n, name in enumerate(names)]
        apart, size = (side.subs(point).doit() for side in (one - other, other))
        decimals = apart.has(Float)
        if apart.is_Rational and not decimals:
            return bool(apart == 0)
        return bool(abs(apart.evalf(50)) <= abs(size.evalf(50)) * (1e-5 if decimals else 1e-30))

    grader.sympy_numeric_eq = closely


def main(cpu_seconds: float) -> None:
    """Answer requests until the standard input closes."""
    # The replies keep the old standard output to themselves; anything printed goes to stderr.
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    logging.disable(logging.WARNING)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _distrust_tolerance()
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
