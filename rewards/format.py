r"""The format reward: is a completion laid out as it was asked to be?

The rules `once` for XML tags are those of d1's GSM8K reward (Zhao et al., 2025, arXiv:2504.12216),
except that the text in a tag may have several lines and must not be blank, and that each tag is
allowed once. `rule: d1` and `rule: maskgrpo` have the published ones
(`mmrl.rewards.parsing.xml_rules`). The score of what fits is 1.0, where d1 has 0.5: how much it
counts is the `weight` of the entry.
"""

from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal

from mmrl.config import Settings, filled
from mmrl.rewards.parsing import xml_rules
from mmrl.rewards.parsing.extraction import find_boxed
from mmrl.rewards.parsing.metadata import read_sample
from mmrl.rewards.parsing.programs import find_python, is_python
from mmrl.types import Sample

Mode = Literal[
    "soft", "strict", "boxed", "xmlcount", "integer", "boxed_and_answer_tags", "code_block"
]
Rule = Literal["once", "d1", "maskgrpo"]


@dataclass(kw_only=True, eq=False)
class FormatReward(Settings):
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

    def __call__(self, samples: list[Sample]) -> list[float | None]:
        """1.0 where the layout holds and else 0.0; see `mode` for those with steps between."""
        return [self._score(sample) for sample in samples]

    def _score(self, sample: Sample) -> float | None:
        content = read_sample(sample, "format")
        assert content is not None, "a reward that needs no metadata applies to every sample"
        text, first, last = content[0], self.tags[0], self.tags[-1]
        match self.mode:
            case "boxed":
                return float(bool(find_boxed(text)))
            case "code_block":
                code = find_python(text)
                return 0.0 if code is None else 1.0 if is_python(code) else 0.5
            case "boxed_and_answer_tags":
                return xml_rules.score_tags_and_box(text, last)
            case "integer" if self.rule == "maskgrpo":
                return float((find_boxed(text) or text).isdigit())
            case "integer":
                return float(xml_rules.read_answer(text, last).isdigit())
            case "xmlcount" if self.rule == "maskgrpo":
                return xml_rules.count_pair(text, first)
            case "xmlcount":
                return xml_rules.count_marks(text, first, last)
        return float(self._fits(text))

    def _fits(self, text: str) -> bool:
        """Whether tags are laid out as `soft` or `strict` wants them."""
        strict = self.mode == "strict"
        if self.rule == "once":
            return has_layout(text, self.tags, strict)
        if self.rule == "maskgrpo" and not strict:
            return xml_rules.contains_pair(text, self.tags[0])
        return xml_rules.matches(text, self.tags, strict, self.multiline and self.rule == "d1")


def has_layout(text: str, tags: list[str], strict: bool) -> bool:
    """Whether a text has each tag once, in order, not empty, with nothing before them.

    Args:
        text: a whole completion.
        tags: names of the tags, in order.
        strict: whether every tag must have its own line and nothing may follow but a line end.
    """
    inside = [text.partition(f"<{tag}>")[2].partition(f"</{tag}>")[0] for tag in tags]
    marks = [f"<{slash}{tag}>" for tag in tags for slash in ("", "/")]
    if not all(part.strip() for part in inside) or any(text.count(mark) != 1 for mark in marks):
        return False
    if not strict:
        return xml_rules.matches(text.lstrip(), tags, False, True)
    lines = text.removesuffix("\n")
    return not lines.endswith("\n") and xml_rules.matches(f"{lines}\n", tags, True, True)
