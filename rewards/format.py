r"""The format reward: is a completion laid out as it was asked to be?

The rules `once` for XML tags are those of d1's GSM8K reward (Zhao et al., 2025, arXiv:2504.12216),
except that the text in a tag may have several lines and must not be blank, and that each tag is
allowed once. `rule: d1` and `rule: maskgrpo` have the published ones, which d1 took from W. Brown's
GRPO example. The score of what fits is 1.0, where d1 has 0.5: how much it counts is the `weight` of
the entry.
"""

import re
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal

from mmrl.config import filled
from mmrl.rewards.parsing.extraction import find_boxed
from mmrl.rewards.parsing.metadata import TextReward
from mmrl.rewards.parsing.programs import find_python, is_python

Mode = Literal[
    "soft", "strict", "boxed", "xmlcount", "integer", "boxed_and_answer_tags", "code_block"
]
Rule = Literal["once", "d1", "maskgrpo"]
MARK = 0.125
PER_CHARACTER = 0.001


@dataclass(kw_only=True, eq=False)
class FormatReward(TextReward):
    """Score the layout of completions; needs no metadata."""

    where: ClassVar[str] = "format"
    needs: ClassVar[tuple[str, ...]] = ("completion",)

    mode: Mode = "soft"
    r"""`strict` wants `<reasoning>`, text, `</reasoning>`, `<answer>`, text, `</answer>`, each on
    its own line and nothing else; `soft` the same tags in this order from the start, with any space
    around them and any text after; `boxed` a closed, filled `\boxed{…}`. d1's terms: `xmlcount`
    gives 0.125 for each tag in its own line, less 0.001 per character behind the last; `integer`
    wants an answer of digits; `boxed_and_answer_tags` gives 0.5 for an answer tag and 0.5 for a box
    in it (0.25 without). MaskGRPO's `code_block` wants the Python block that the reward `code`
    runs, parseable (else 0.5)."""
    rule: Rule = "once"
    """`once` wants each tag once and filled; `d1` has its regular expressions, which let tags be
    empty and repeated; `maskgrpo` wants, of `soft` and `xmlcount`, the first pair of tags alone,
    and reads the box for `integer`."""
    multiline: bool = True
    """Whether text in a tag may have several lines with `rule: d1`; d1's runs did without (false),
    so that a reasoning of several lines never fitted. MaskGRPO's `strict` has the same."""
    tags: Annotated[list[Annotated[str, filled("a tag")]], filled("at least one tag")] = field(
        default_factory=lambda: ["reasoning", "answer"]
    )
    """Names of the tags, in order."""

    def score(self, completion: str, reference: None) -> float:
        """1.0 where the layout holds and else 0.0; see `mode` for those with steps between."""
        text, first, last = completion, self.tags[0], self.tags[-1]
        match self.mode:
            case "boxed":
                return float(bool(find_boxed(text)))
            case "code_block":
                code = find_python(text)
                return 0.0 if code is None else 1.0 if is_python(code) else 0.5
            case "boxed_and_answer_tags":
                return score_tags_and_box(text, last)
            case "integer" if self.rule == "maskgrpo":
                return float((find_boxed(text) or text).isdigit())
            case "integer":
                return float(read_answer(text, last).isdigit())
            case "xmlcount" if self.rule == "maskgrpo":
                return count_pair(text, first)
            case "xmlcount":
                return count_marks(text, first, last)
        return float(self._fits(text))

    def _fits(self, text: str) -> bool:
        """Whether tags are laid out as `soft` or `strict` wants them."""
        strict = self.mode == "strict"
        if self.rule == "once":
            return has_layout(text, self.tags, strict)
        if self.rule == "maskgrpo" and not strict:
            return contains_pair(text, self.tags[0])
        return matches(text, self.tags, strict, self.multiline and self.rule == "d1")


def has_layout(text: str, tags: list[str], strict: bool) -> bool:
    """Whether a text has each tag once, in order, not empty, with nothing before them; `strict`:
    and every tag in its own line, and nothing behind but a line end."""
    inside = [text.partition(f"<{tag}>")[2].partition(f"</{tag}>")[0] for tag in tags]
    marks = [f"<{slash}{tag}>" for tag in tags for slash in ("", "/")]
    if not all(part.strip() for part in inside) or any(text.count(mark) != 1 for mark in marks):
        return False
    if not strict:
        return matches(text.lstrip(), tags, False, True)
    lines = text.removesuffix("\n")
    return not lines.endswith("\n") and matches(f"{lines}\n", tags, True, True)


def matches(text: str, tags: list[str], strict: bool, multiline: bool) -> bool:
    """Whether a text begins with the tags in their order, white space between them; `strict`: it is
    these alone, every tag in its own line, a line end after the last; `multiline`: text in a tag
    may have several lines."""
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
    r"""d1's format term for MATH: half for an opening tag, and half, or a quarter, for a box in it,
    which without the tag may be anywhere."""
    _, opening, rest = text.partition(f"<{tag}>")
    inside = rest.split(f"</{tag}>")[0].split(f"<{tag}>")[0] if opening else text
    return 0.5 * bool(opening) + (0.5 if "\\boxed" in inside else 0.25)
