r"""The Countdown reward: does an expression use each number once and reach the target?

d1's rule (Zhao et al., 2025, arXiv:2504.12216) with three differences: a box counts as well as
`<answer>…</answer>`, LaTeX operators and a closing `= 51` are understood, and only + - * / and
brackets count as arithmetic (d1's character filter lets ** and // through). Expressions are parsed
by `ast` and their trees walked in exact fractions; nothing is executed.
"""

import ast
import operator
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from numbers import Integral
from typing import Annotated, Any, ClassVar

from mmrl.config import at_least
from mmrl.rewards.parsing.extraction import extract
from mmrl.rewards.parsing.metadata import TextReward
from mmrl.rewards.parsing.notation import spell

MAX_CHARS = 300
"""Of an expression; a longer one is refused."""
_OPERATORS: dict[type, Callable[[Fraction, Fraction], Fraction]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}
_DROPPED = re.compile(r"\\[()\[\],]|\$")
_SPELLINGS = {r"\times": "*", r"\cdot": "*", r"\div": "/", "[": "(", "]": ")"}
_FRACTION = re.compile(r"\\[dt]?frac\{([^{}]*)\}\{([^{}]*)\}")
_EQUATION = re.compile(r"([^=]*)=[-\d.\s]+")


@dataclass(kw_only=True, eq=False)
class CountdownReward(TextReward):
    """Score expressions against the metadata `numbers` and `target`."""

    where: ClassVar[str] = "countdown"
    keys: ClassVar[tuple[str, ...]] = ("numbers", "target")

    partial: Annotated[float, at_least(0, below=1)] = 0.0
    """Score of an expression that was given but is wrong (d1 has 0.1); 0.0 gives no partial
    credit."""

    def read(self, *values: Any) -> tuple[list[int], int]:
        numbers, target = values
        return read_whole_numbers(numbers, "numbers"), read_whole_number(target, "target")

    def score(self, completion: str, reference: tuple[list[int], int]) -> float:
        """1.0 where the expression uses every number exactly once and equals the target, `partial`
        where it does not, 0.0 without an expression."""
        found = extract(completion, ("boxed", "answer"))
        if found is None:
            return 0.0
        return 1.0 if solves(found[1], *reference) else self.partial


def solves(written: str, numbers: list[int], target: int) -> bool:
    """Whether an expression, or the left side of `expression = number`, is a solution. A minus
    before a number is its sign or an operation, whichever is needed."""
    text = normalise(written)
    equation = _EQUATION.fullmatch(text)
    try:
        value, used = evaluate(equation[1] if equation else text)
    except (ValueError, ZeroDivisionError):
        return False
    once = sorted(map(abs, used)) == sorted(map(abs, numbers))
    negative = Counter(n for n in numbers if n < 0)
    return once and negative <= Counter(n for n in used if n < 0) and value == target


def read_whole_numbers(values: Any, key: str) -> list[int]:
    """Numbers of a problem, as JSON, tables and d1's files write them: 3, 3.0 or "3". Raises
    ValueError: no list, or something other than whole numbers in it; says which, under `key`."""
    if not isinstance(values, list | tuple):
        raise ValueError(
            f"{key} is {values!r}; it must be a list of whole numbers, such as [49, 55, 53]."
        )
    return [read_whole_number(value, f"{key}[{n}]") for n, value in enumerate(values)]


def read_whole_number(value: Any, key: str) -> int:
    """One number of a problem; see `read_whole_numbers`."""
    written = isinstance(value, str) and re.fullmatch(r"\s*[+-]?\d+\s*", value)
    exact = isinstance(value, float) and value.is_integer()
    if written or exact or (isinstance(value, Integral) and not isinstance(value, bool)):
        return int(value)
    raise ValueError(f"{key} is {value!r}; it must be a whole number, such as 3, 3.0 or '3'.")


def normalise(written: str) -> str:
    """LaTeX and typographic operators as + - * / and brackets."""
    text = _FRACTION.sub(r"((\1)/(\2))", spell(_DROPPED.sub("", written)))
    for spelling, sign in _SPELLINGS.items():
        text = text.replace(spelling, sign)
    return text.strip()


def evaluate(text: str) -> tuple[Fraction, list[int]]:
    """The value of an expression of whole numbers, + - * / and brackets, and the numbers in it; a
    number behind a minus sign is negative. Raises ValueError: anything else, or more than
    `MAX_CHARS` characters. Raises ZeroDivisionError: a division by zero."""
    text = text.strip()
    if len(text) > MAX_CHARS or not re.fullmatch(r"[\d+\-*/() ]+", text):
        raise ValueError("not arithmetic")
    try:
        tree = ast.parse(text, mode="eval").body
    except (SyntaxError, RecursionError, MemoryError) as error:
        raise ValueError("not an expression") from error
    used: list[int] = []
    return _evaluate(tree, used), used


def _evaluate(node: ast.expr, used: list[int]) -> Fraction:
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        return _OPERATORS[type(node.op)](_evaluate(node.left, used), _evaluate(node.right, used))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.UAdd | ast.USub):
        value = _evaluate(node.operand, used)
        if isinstance(node.op, ast.UAdd):
            return value
        if isinstance(node.operand, ast.Constant):
            used[-1] = -used[-1]
        return -value
    if isinstance(node, ast.Constant) and type(node.value) is int:
        used.append(node.value)
        return Fraction(node.value)
    raise ValueError("only whole numbers and + - * / are allowed")
