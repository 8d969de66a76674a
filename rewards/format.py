r"""The format reward: is a completion laid out as it was asked to be?

The XML rules are those of d1's GSM8K reward (Zhao et al., 2025, arXiv:2504.12216), except that the
text in a tag may have several lines and must not be blank, and that each tag is allowed once. The
score is 1.0, not d1's 0.5: how much it counts is the `weight` of the entry.
"""

from typing import ClassVar, Literal

from mmrl.types import Sample
from rewards.parsing.extraction import find_boxed
from rewards.parsing.metadata import read_sample

MODES = ("soft", "strict", "boxed")


class FormatReward:
    r"""Score the layout of completions; needs no metadata.

    Args:
        mode: `strict` wants `<reasoning>`, text, `</reasoning>`, `<answer>`, text, `</answer>`,
            each on its own line and nothing else; `soft` the same tags in this order from the
            start, with any space around them and any text after; `boxed` a closed, filled
            `\boxed{…}`.
        tags: names of the tags, in order.
        prefilled: whether the prompt already ends with the first opening tag, as in d1's
            evaluation.

    Raises:
        ValueError: an unknown mode, or no tags.
    """

    scale: ClassVar[str] = "0 or 1"
    needs: ClassVar[tuple[str, ...]] = ("completion",)

    def __init__(
        self,
        mode: Literal["soft", "strict", "boxed"] = "soft",
        tags: list[str] = ["reasoning", "answer"],  # noqa: B006 (never changed)
        prefilled: bool = False,
    ) -> None:
        if mode not in MODES:
            raise ValueError(f"mode={mode!r} is not allowed: use {', '.join(MODES)}.")
        if not tags or not all(tags):
            raise ValueError(f"tags={tags!r} must name at least one tag.")
        self.mode, self.tags, self.prefilled = mode, list(tags), prefilled

    def __call__(self, samples: list[Sample]) -> list[float | None]:
        """1.0 where the layout holds and else 0.0."""
        return [self._score(sample) for sample in samples]

    def _score(self, sample: Sample) -> float | None:
        content = read_sample(sample, "format")
        assert content is not None, "a reward that needs no metadata applies to every sample"
        text = content[0]
        if self.mode == "boxed":
            return float(bool(find_boxed(text)))
        if self.prefilled:
            text = f"<{self.tags[0]}>{text}"
        return float(has_layout(text, self.tags, self.mode == "strict"))


def has_layout(text: str, tags: list[str], strict: bool) -> bool:
    """Whether a text has each tag once, in order, not empty, with nothing before them.

    Args:
        text: a whole completion.
        tags: names of the tags, in order.
        strict: whether every tag must have its own line and nothing may follow but a line end.
    """
    gap, rest = ("\n" if strict else None), text
    for n, tag in enumerate(tags):
        opening, closing = f"<{tag}>", f"</{tag}>"
        before, _, after = rest.partition(opening)
        content, closed, rest = after.partition(closing)
        if not closed or text.count(opening) != 1 or text.count(closing) != 1:
            return False
        if not content.strip() or not _is_gap(before, gap if n else gap and ""):
            return False
        if strict and not (content.startswith("\n") and content.endswith("\n")):
            return False
    return not strict or rest in ("", "\n")


def _is_gap(text: str, wanted: str | None) -> bool:
    return not text.strip() if wanted is None else text == wanted
