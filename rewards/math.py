r"""The math reward: is the answer of a completion the reference answer?

The answer is read from the last `\boxed{…}`, else `<answer>…</answer>` (where a box may be misspelt
or empty), else after `####`, else it is what is stated as the answer, or the last number. It is
right if it reads the same, if both are numbers of one value (`mmrl.rewards.parsing.number`), or if
math-verify finds them equal (reference first). With `match: exact` (d1's rule for GSM8K) the answer
must read like the reference, character by character; with `match: string` (d1's for MATH) up to
spelling (`mmrl.rewards.parsing.math_strings`). References come as they are in GSM8K (`… #### 72`)
and MATH (a solution with a box), as a bare answer, or as a number.
"""

import re
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

from mmrl.config import above, at_least, filled, one_of
from mmrl.rewards.parsing.extraction import SOURCES, extract, find_boxed, find_hashed
from mmrl.rewards.parsing.math_strings import equal_strings
from mmrl.rewards.parsing.metadata import TextReward, write_value
from mmrl.rewards.parsing.number import equal, find_number, read_number, unwrap, without_unit
from mmrl.rewards.parsing.verifier import Verifier

MAX_ANSWER_CHARS = 1000
_FUNCTIONS = (
    "arc(?:sin|cos|tan)|sin|cos|tan|cot|sec|csc|log|ln|exp|sqrt|frac|pi|min|max|gcd|lcm|mod"
)
_WORD = re.compile(rf"(?<![A-Za-z\\])(?!(?:{_FUNCTIONS})(?![A-Za-z]))[A-Za-z]{{2,}}")
_EMPTY_BOX = re.compile(r"\\?f?boxed\s*\{\s*\}")
_MISSPELT_BOX = re.compile(r"\\?[.\s]?f?boxed\s*\{(.*?)\}?", re.DOTALL)


@dataclass(kw_only=True, eq=False)
class MathReward(TextReward):
    """Score completions against the metadata `answer`."""

    where: ClassVar[str] = "math"
    keys: ClassVar[tuple[str, ...]] = ("answer",)

    sources: Annotated[
        list[Annotated[str, one_of(SOURCES)]], filled(f"some of {', '.join(SOURCES)}")
    ] = field(default_factory=lambda: ["boxed", "answer", "hash", "number"])
    """Where an answer may be, in the order tried: boxed, answer, hash, number."""
    partial: Annotated[float, at_least(0, below=1)] = 0.0
    """Score of an answer that is wrong but was marked as one (a box, a tag or `####`); 0.0 gives no
    partial credit."""
    timeout: Annotated[float, above(0)] = 5.0
    """Seconds of processor time for one comparison. An answer that needs more counts as wrong, with
    a warning."""
    match: Literal["value", "exact", "string"] = "value"
    """`value`, `exact` or `string`, as above."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.verifier = Verifier(self.timeout)

    def read(self, *values: Any) -> str:
        return read_reference(*values)

    def score(self, completion: str, reference: str) -> float:
        """1.0 for a right answer, `partial` for a marked wrong one, 0.0 for another or none. Raises
        VerifierError: the verifying process failed for a reason that is not the answer."""
        found = extract(completion, self.sources)
        if found is None:
            return 0.0
        source, written = found
        if source == "answer" and self.match == "value":
            written = _unbox(written)
        if self._right(reference, written):
            return 1.0
        return 0.0 if source == "number" else self.partial

    def _right(self, gold: str, written: str) -> bool:
        if self.match != "value":
            return gold == written if self.match == "exact" else equal_strings(gold, written)
        if _bare(gold) == _bare(written):
            return True
        return len(written) <= MAX_ANSWER_CHARS and self._equal(gold, written)

    def _equal(self, gold: str, written: str) -> bool:
        """Whether both have one value: as numbers where the reference is one and the answer is one
        or says one in words, else by math-verify, which cannot read words."""
        wanted = read_number(gold)
        if wanted is not None:
            found = read_number(written)
            if found is not None or _WORD.search(unwrap(written)):
                found = found or find_number(written)
                return found is not None and equal(wanted, found)
        return bool(self.verifier.equal(without_unit(gold), without_unit(written)))


def read_reference(answer: Any) -> str:
    """The bare answer in a reference: the last box, else what follows `####`, else all of it.
    Raises ValueError: it is empty, or neither text nor a number."""
    if isinstance(answer, bool) or not isinstance(answer, str | int | float):
        raise ValueError(f"answer={answer!r} must be text or a number.")
    if not isinstance(answer, str):
        return write_value(answer, "answer").removesuffix(".0")
    gold = find_boxed(answer) or find_hashed(answer) or answer.strip()
    if not gold:
        raise ValueError(f"answer={answer!r} is empty; give the right answer.")
    return gold


def _unbox(text: str) -> str:
    """The content of a tag without boxes that the model has not spelled or filled."""
    content = _EMPTY_BOX.sub("", text).strip()
    return match.group(1) if (match := _MISSPELT_BOX.fullmatch(content)) else content


def _bare(text: str) -> str:
    return text.strip().strip("$").removesuffix(".").replace("\\$", "").strip()
