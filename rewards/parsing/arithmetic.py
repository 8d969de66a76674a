r"""Arithmetic that a text contains, evaluated in exact fractions.

Expressions are parsed by `ast` and their trees walked; nothing is executed.
"""

import ast
import operator
import re
from collections.abc import Callable
from fractions import Fraction

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


def normalise(written: str) -> str:
    """LaTeX and typographic operators as + - * / and brackets."""
    text = _FRACTION.sub(r"((\1)/(\2))", spell(_DROPPED.sub("", written)))
    for spelling, sign in _SPELLINGS.items():
        text = text.replace(spelling, sign)
    return text.strip()


def evaluate(text: str) -> tuple[Fraction, list[int]]:
    """The value of an expression of whole numbers, + - * / and brackets, and the numbers in it; a
    number behind a minus sign is negative.

    Raises:
        ValueError: anything else, or more than `MAX_CHARS` characters.
        ZeroDivisionError: a division by zero.
    """
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
