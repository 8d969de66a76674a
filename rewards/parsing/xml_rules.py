r"""Rules for completions in XML tags as d1 and MaskGRPO publish them.

d1 (Zhao et al. 2025, arXiv:2504.12216) took them from W. Brown's GRPO example. Each function has
the score as published, without the factor of 0.5 that most have there; that is the `weight` of the
configuration entry.
"""

import re

MARK = 0.125
PER_CHARACTER = 0.001


def matches(text: str, tags: list[str], strict: bool, multiline: bool) -> bool:
    """Whether a text begins with the tags in their order, white space between them.

    Args:
        text: a completion.
        tags: names of the tags.
        strict: whether it is these alone, every tag in its own line, a line end after the last.
        multiline: whether text in a tag may have several lines.
    """
    soft = r"\s*".join(f"<{tag}>.*?</{tag}>" for tag in tags)
    lines = "".join(rf"<{tag}>\n.*?\n</{tag}>\n" for tag in tags)
    expression = f"{lines}$" if strict else soft
    return re.match(expression, text, re.DOTALL if multiline else 0) is not None


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


def score_tags_and_box(text: str, tag: str) -> float:
    r"""d1's format term for MATH: half for an opening tag, and half, or a quarter, for a box in it.

    Args:
        text: a completion; without the tag the box may be anywhere.
        tag: name of the tag.
    """
    _, opening, rest = text.partition(f"<{tag}>")
    inside = rest.split(f"</{tag}>")[0].split(f"<{tag}>")[0] if opening else text
    return 0.5 * bool(opening) + (0.5 if "\\boxed" in inside else 0.25)
