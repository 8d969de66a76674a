r"""Finds the answer of a completion: `\boxed{…}`, `<answer>…</answer>`, `#### …`,
behind "the answer is", or the last number.

The last place counts. One that was opened and never closed is no answer, nor is an earlier one
then: a completion that was truncated may have been about to say something else. Every finder reads
a text once.
"""

import re
from collections.abc import Callable, Sequence

from mmrl.rewards.parsing.number import find_last

_BOX_OR_BRACE = re.compile(r"\\f?boxed\s*\{|(?<!\\)[{}]")
_HASHED = re.compile(r"####(?!#)([^\n#]*)(?=(?:\s*\n\s*([^\n]*))?)")
_TITLE = re.compile(r"[*_\s]*(?:(?:the|final)\s+)*answer\b[*_]*(?:\s+is\b)?[*_:\s]*", re.IGNORECASE)
_HEADING = re.compile(r"(?:\d+[.)]\s*)?[*_]*[A-Za-z]{2,}")
_EMPHASIS = re.compile(r"(\*{1,3}|_{1,3}|`)(?=[^\s*_`])([^*`]+)(?<=\S)\1")
_STATED = re.compile(
    r"\banswer[*_]*(?:\s+is\b|\s*[:=])(?![*_:\s]*not\b)[*_:\s]*(.+?)"
    r"(?:[.!?][*_]*(?=\s|$)|\s(?:because|since)\b|$)"
    r"|^#[^\n]*\banswer[*_: \t]*\n\s*(.+?)$",
    re.IGNORECASE | re.MULTILINE,
)


def find_boxed(text: str) -> str | None:
    r"""The content of the last `\boxed{…}` or `\fbox{…}`, braces inside it balanced; None where it
    is not closed."""
    start, end = _last_box(text)
    return text[start:end].strip() if end is not None else None


def _last_box(text: str) -> tuple[int, int | None]:
    """Where the content of the box that was opened last begins and ends; (-1, None) without one."""
    last, end, opened = -1, None, []
    for match in _BOX_OR_BRACE.finditer(text):
        if match[0] != "}":
            opened.append(match.end())
            if match[0] != "{":
                last, end = match.end(), None
        elif opened and opened.pop() == last:
            end = match.start()
    return last, end


def find_tagged(text: str, tag: str = "answer") -> str | None:
    """The content of the last `<tag>`; None where no `</tag>` closes it."""
    _, opened, rest = text.rpartition(f"<{tag}>")
    content, closed, _ = rest.partition(f"</{tag}>")
    return content.strip() if opened and closed else None


def find_hashed(text: str) -> str | None:
    """The rest of the line after the last `####`, as GSM8K writes its answers; behind a title that
    says "answer", or below it. Another heading is none."""
    for match in reversed(list(_HASHED.finditer(text))):
        line = match[1].strip()
        title, below = _TITLE.match(line), (match[2] or "").strip()
        if title:
            return line[title.end() :] or below
        if not _HEADING.match(line) or not (below or re.search(r"\d", line)):
            return line
    return None


def last_number(text: str) -> str | None:
    """The last number of what is stated as the answer, or else of the text."""
    stated = find_stated(text)
    return (find_last(stated[-1]) if stated else None) or find_last(text)


def find_stated(text: str) -> list[str]:
    """What a text states behind "the answer is", "answer:" or a heading of that name."""
    return [match[1] or match[2] for match in _STATED.finditer(text)]


def is_truncated(text: str) -> bool:
    """Whether a box or an answer tag was opened last and not closed. The end of a tag is also that
    of a box in it, and a filled box is an answer in a tag that is open."""
    box, end = _last_box(text)
    tag, closing = text.rfind("<answer>"), text.rfind("</answer>")
    if end is None and box > closing:
        return True
    return tag > max(closing, box if find_boxed(text) else -1)


SOURCES: dict[str, Callable[[str], str | None]] = {
    "boxed": find_boxed,
    "answer": find_tagged,
    "hash": find_hashed,
    "number": last_number,
}


def extract(text: str, sources: Sequence[str] = tuple(SOURCES)) -> tuple[str, str] | None:
    """The answer of a completion and where it was found: the source, a key of `SOURCES`, and the
    answer as written but for Markdown's emphasis around it. Sources are tried in their order; one
    that finds nothing, or nothing but space, passes on to the next. None where none finds one, or
    the completion was truncated in its answer."""
    for source in () if is_truncated(text) else sources:
        content = SOURCES[source](text)
        if content:
            emphasised = _EMPHASIS.fullmatch(content)
            return source, emphasised[2].strip() if emphasised else content
    return None
