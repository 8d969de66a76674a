r"""Finds the answer in a completion: `\boxed{…}`, `<answer>…</answer>`, `#### …`, a last number.

Every rule takes the last place that is complete. A box or a tag that never closes is not an answer:
a completion that was truncated may have been about to say something else.
"""

import re
from collections.abc import Callable, Sequence

_NUMBER = re.compile(r"(?:(?<![\w.)])-)?(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d+)?(?:\s?\\?%)?")
_BOX = re.compile(r"\\f?boxed\s*(?=\{)")


def find_boxed(text: str) -> str | None:
    r"""The content of the last complete `\boxed{…}` or `\fbox{…}`, braces inside it balanced."""
    span = _last_box(text)
    return text[slice(*span)].strip() if span else None


def _last_box(text: str) -> tuple[int, int] | None:
    for match in reversed(list(_BOX.finditer(text))):
        end = _closing(text, match.end())
        if end is not None:
            return match.end() + 1, end
    return None


def _closing(text: str, start: int) -> int | None:
    """Where the brace that opens at `start` closes."""
    depth = 0
    for n in range(start, len(text)):
        if text[n] in "{}" and text[n - 1] != "\\":
            depth += 1 if text[n] == "{" else -1
        if depth == 0:
            return n
    return None


def find_tagged(text: str, tag: str = "answer") -> str | None:
    """The content of the last `<tag>` that is closed by a `</tag>` before another one opens."""
    opening, closing = f"<{tag}>", f"</{tag}>"
    for part in reversed(text.split(opening)[1:]):
        if closing in part:
            return part[: part.index(closing)].strip()
    return None


def find_hashed(text: str) -> str | None:
    """The rest of the line after the last `####`, as GSM8K writes its answers."""
    _, mark, rest = text.rpartition("####")
    return rest.strip().split("\n")[0].strip() if mark else None


def last_number(text: str) -> str | None:
    """The last number in the text; commas between thousands and a percent sign belong to it.

    None where an answer was truncated: the number in it may be half written.
    """
    found = [] if is_truncated(text) else _NUMBER.findall(text)
    return found[-1] if found else None


def is_truncated(text: str) -> bool:
    """Whether a box or an answer tag was opened last and not closed."""
    box = _last_box(text)
    if _BOX.search(text, box[1] if box else 0):
        return True
    return text.rfind("<answer>") > text.rfind("</answer>")


SOURCES: dict[str, Callable[[str], str | None]] = {
    "boxed": find_boxed,
    "answer": find_tagged,
    "hash": find_hashed,
    "number": last_number,
}


def extract(text: str, sources: Sequence[str] = tuple(SOURCES)) -> tuple[str, str] | None:
    """The answer of a completion and where it was found.

    Args:
        text: a completion.
        sources: keys of `SOURCES`, tried in this order; one that finds nothing, or nothing but
            space, passes on to the next.

    Returns:
        The source and the answer as written, or None where no source finds one.
    """
    for source in sources:
        content = SOURCES[source](text)
        if content:
            return source, content
    return None
