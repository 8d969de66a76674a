"""Checks what rewards return: scores, scores of chunks, None, or a problem."""

import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real
from pathlib import Path
from typing import Any

import mmrl
from mmrl.types import Sample

_PACKAGE = str(Path(mmrl.__file__).parent)
_CALLERS = tuple(str(Path("scoring", name)) for name in ("scorer.py", "terms.py", "frames.py"))


@dataclass(frozen=True)
class Failure:
    """Why one sample has no score."""

    reason: str
    error: BaseException | None = None

    def __str__(self) -> str:
        return self.reason

    @property
    def place(self) -> str:
        """File and line of the user's own reward that raised; empty for others."""
        found = traceback.extract_tb(self.error.__traceback__ if self.error else None)
        frames = [frame for frame in found if not frame.filename.endswith(_CALLERS)]
        if not frames or frames[0].filename.startswith(_PACKAGE):
            return ""
        own = [frame for frame in frames if frame.filename == frames[0].filename]
        return f" ({own[-1].filename}, line {own[-1].lineno})"


LARGEST = 1e36
"""Largest score and contribution; sums over rewards and chunks then stay finite in float32."""


def is_bounded(number: Any) -> bool:
    """Whether a number is finite and at most `LARGEST`; also for whole numbers no float holds."""
    return -LARGEST <= number <= LARGEST


Result = float | list[float] | None | Failure
"""Of one reward for one sample: a score, one per chunk, None if it does not apply, a failure."""


def validate(scores: Any, batch: Sequence[Sample]) -> list[Result]:
    """The scores that a reward returned, with a `Failure` in place of all that is not a score. They
    should be a list with a finite number, a list of one for each chunk, or None for each sample of
    the batch; an exception is a failure too."""
    if not isinstance(scores, list | tuple) or len(scores) != len(batch):
        kind = f"a {type(scores).__module__}.{type(scores).__name__}".replace("builtins.", "")
        got = f"{len(scores)} scores" if isinstance(scores, list | tuple) else kind
        advice = "; it must be a list with a number, or None, for each"
        return [Failure(f"returned {got} for {len(batch)} samples{advice}")] * len(batch)
    return [_validate(score, sample) for score, sample in zip(scores, batch, strict=True)]


def _validate(score: Any, sample: Sample) -> Result:
    if not isinstance(score, list | tuple):
        return check_number(score)
    if sample.chunks is None or len(score) != len(sample.chunks):
        count = 0 if sample.chunks is None else len(sample.chunks)
        return Failure(f"returned {len(score)} scores for {count} chunks")
    numbers = [check_number(each) for each in score]
    known = [number for number in numbers if isinstance(number, float)]
    problems = [number for number in numbers if isinstance(number, Failure)]
    if len(known) < len(numbers):
        return problems[0] if problems else Failure("returned None for a chunk")
    return known or None


def check_number(score: Any) -> float | None | Failure:
    """A score that is a finite number, or None, or the failure that it is."""
    if isinstance(score, Exception):
        return Failure(f"{type(score).__name__}: {score}", score)
    if score is None:
        return None
    if isinstance(score, bool) or not isinstance(score, Real):
        advice = "; write float(…)" if isinstance(score, bool) else ""
        return Failure(f"returned {score!r}, which is not a number{advice}")
    if is_bounded(score):
        return float(score)
    return Failure(f"returned {score}; a score is finite and at most {LARGEST:g}")
