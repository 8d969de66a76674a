"""Finds the program in a completion, for all that run it or look at its layout.

It is the last finished Python block, else the last block without a language, else the last one;
without any block the content of the answer tag, else all of the text. Blocks in the answer tag come
first, and thoughts hold drafts only. A block may open behind words, and close behind code.
"""

import ast
import re

MAX_CHARS = 100_000
_BLOCK = re.compile(
    r"(?<![`~])(?P<fence>`{3,9}|~{3,9})(?![`~])[ \t]{0,4}\{?\.?(?P<language>[\w+#-]{0,20})[^`\n]*\n"
    # a fence with a language behind it opens the next block
    r"(?P<code>.*?)(?:(?=^[ \t>]*(?P=fence)[a-z])|^[ \t>]*(?P=fence)|(?P=fence)(?=[ \t]*(?:$|<)))",
    re.DOTALL | re.MULTILINE,
)
_PYTHON = ("python", "python3", "py")


def find_program(completion: str) -> str:
    """The program in a completion; empty where its block, or the thought before it, is not closed:
    such a text was truncated."""
    text, answer, blocks = _read(completion)
    if blocks:
        plain = [code for language, code in blocks if not language]
        return (
            [code for language, code in blocks if language in _PYTHON] or plain or [blocks[-1][1]]
        )[-1]
    return "" if "```" in text or "~~~" in text else _unindent(answer or text)


def find_python(completion: str) -> str | None:
    """The last finished block that says it is Python."""
    found = [code for language, code in _read(completion)[2] if language in _PYTHON]
    return found[-1] if found else None


def is_python(code: str) -> bool:
    """Whether code can be parsed; none above `MAX_CHARS` is."""
    try:
        ast.parse(code if len(code) <= MAX_CHARS else "(")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def _read(completion: str) -> tuple[str, str, list[tuple[str, str]]]:
    """What is written behind the thoughts, what in the last closed answer tag of that, and language
    and code of the finished blocks in the tag, or else in all."""
    text = completion.rpartition("</think>")[2]
    text = "" if "<think>" in text else text
    _, opened, answer = text.rpartition("</answer>")[0].rpartition("<answer>")
    answer = answer if opened else ""
    found = list(_BLOCK.finditer(answer)) or _BLOCK.finditer(text)
    return text, answer, [(m["language"].lower(), _unindent(m["code"])) for m in found]


def _unindent(code: str) -> str:
    """Code without the margin of its first line, and without blank lines around it."""
    code = re.sub(r"\A(?:[ \t]*\n)+", "", code).rstrip(" \t\r\n>")
    margin = len(code) - len(code.lstrip(" \t>"))
    return re.sub(rf"^[ \t>]{{1,{margin}}}", "", code, flags=re.MULTILINE) if margin else code
