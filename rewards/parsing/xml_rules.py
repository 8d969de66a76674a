r"""Rules for completions in XML tags as d1 and MaskGRPO publish them.

d1 (Zhao et al. 2025, arXiv:2504.12216) took them from W. Brown's GRPO example. Each function has
the score as published, without the factor of 0.5 that most have there; that is the `weight` of the
configuration entry.
"""

import re
from bisect import bisect_left
from itertools import pairwise

MARK = 0.125
PER_CHARACTER = 0.001


def matches_soft(text: str, tags: list[str], multiline: bool) -> bool:
    """Whether a text begins with the tags in their order, white space between them.

    Args:
        text: a completion.
        tags: names of the tags.
        multiline: whether text in a tag may have several lines.
    """
    gaps = [rf"</{a}>\s*<{b}>" for a, b in pairwise(tags)]
    gaps.append(f"</{tags[-1]}>")
    return _end_of_gaps(text, f"<{tags[0]}>", gaps, multiline) is not None


def matches_strict(text: str, tags: list[str], multiline: bool) -> bool:
    """Whether a text is the tags in their order, every tag in its own line, a line end after the
    last; see `matches_soft`."""
    if not multiline:
        lines = "".join(rf"<{tag}>\n.*?\n</{tag}>\n" for tag in tags)
        return bool(re.match(rf"{lines}$", text))
    gaps = [f"\n</{a}>\n<{b}>\n" for a, b in pairwise(tags)]
    end, closing = _end_of_gaps(text, f"<{tags[0]}>\n", gaps, True), f"\n</{tags[-1]}>\n"
    whole = text.removesuffix("\n") if text.endswith(f"{closing}\n") else text
    return end is not None and whole.endswith(closing) and end <= len(whole) - len(closing)


def _end_of_gaps(text: str, opening: str, gaps: list[str], multiline: bool) -> int | None:
    """Where the last of several patterns ends that follow an opening in their order, on one line
    from each to the next or not. One regular expression for all would take quadratic time."""
    breaks = [] if multiline else [n for n, sign in enumerate(text) if sign == "\n"]
    ends = (
        {0: len(opening)} if text.startswith(opening) else {}
    )  # line -> where it is first reached
    for gap in gaps:
        reached: dict[int, int] = {}
        for match in re.finditer(gap, text):
            if ends.get(bisect_left(breaks, match.start()), len(text)) <= match.start():
                reached.setdefault(bisect_left(breaks, match.end()), match.end())
        ends = reached
    return min(ends.values(), default=None)


def contains_pair(text: str, tag: str) -> bool:
    """MaskGRPO's soft rule: whether an opening tag is followed by its closing one, anywhere."""
    return f"</{tag}>" in text.partition(f"<{tag}>")[2]


def count_marks(text: str, first: str, last: str) -> float:
    r"""d1's `xmlcount`: 0.125 for each of four tags that occurs once in its own line, less 0.001
    for each character behind the last.

    As published, a text without `\n</last>\n` loses 0.001 for each of its characters where
    `\n<last>\n` occurs once.
    """
    score = MARK * (text.count(f"<{first}>\n") == 1) + MARK * (text.count(f"\n</{first}>\n") == 1)
    if text.count(f"\n<{last}>\n") == 1:
        score += MARK - PER_CHARACTER * len(text.split(f"\n</{last}>\n")[-1])
    if text.count(f"\n</{last}>") == 1:
        score += MARK - PER_CHARACTER * (len(text.split(f"\n</{last}>")[-1]) - 1)
    return score


def count_pair(text: str, tag: str) -> float:
    """MaskGRPO's `xmlcount`: 0.125 for each tag of one pair that occurs once in its own line."""
    return MARK * (text.count(f"<{tag}>\n") == 1) + MARK * (text.count(f"\n</{tag}>") == 1)


def read_answer(text: str, tag: str) -> str:
    """What d1 takes as the answer: the text behind the last opening tag, up to a closing one; all
    of it without tags."""
    return text.split(f"<{tag}>")[-1].split(f"</{tag}>")[0].strip()


def score_tags_and_box(text: str, tag: str, box_bonus: bool) -> float:
    r"""d1's format term for MATH: half for an opening tag, and half, or a quarter, for a box in it.

    Args:
        text: a completion; without the tag the box may be anywhere.
        tag: name of the tag.
        box_bonus: False is the published code, which looks for `\boxed` with a backspace instead
            of a backslash, and so always gives the quarter.
    """
    _, opening, rest = text.partition(f"<{tag}>")
    inside = rest.split(f"</{tag}>")[0].split(f"<{tag}>")[0] if opening else text
    boxed = box_bonus and "\\boxed" in inside
    return 0.5 * bool(opening) + (0.5 if boxed else 0.25)
