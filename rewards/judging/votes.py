"""Several replies of a judge to one request, and the one score they become."""

from collections.abc import Callable, Sequence
from statistics import fmean

from mmrl.rewards.registry.interface import Reward
from mmrl.types import Sample


def _agreement(votes: Sequence[float]) -> float | None:
    return votes[0] if len(set(votes)) == 1 else None


def _firm_agreement(votes: Sequence[float]) -> float | None:
    return _agreement(votes) or None


VOTES: dict[str, Callable[[Sequence[float]], float | None]] = {
    "mean": fmean,
    "agreement": _agreement,
    "firm_agreement": _firm_agreement,
}
"""By the name of the rule; None where the votes do not agree (or, for `firm_agreement`, on 0)."""


class Jury:
    """Makes one score of several votes.

    Args:
        rule: key of `VOTES`.
        outcome: a reward from 0 to 1 that decides without agreement, then from -1 to 1; None
            decides 0.
    """

    def __init__(self, rule: str, outcome: Reward | None) -> None:
        self.rule, self.outcome = VOTES[rule], outcome

    def decide(self, votes: Sequence[float | Exception], sample: Sample) -> float | Exception:
        """The score of a completion, or of a chunk of it; the first error among the votes, or of
        the outcome."""
        errors = [vote for vote in votes if isinstance(vote, Exception)]
        if errors:
            return errors[0]
        score = self.rule([vote for vote in votes if isinstance(vote, float)])
        if score is not None:
            return score
        if self.outcome is None:
            return 0.0
        try:
            [found] = self.outcome([sample])
        except (ValueError, RuntimeError) as error:
            return error
        if not isinstance(found, int | float):
            return ValueError(
                f"judge.outcome has no score of {sample.prompt[:80]!r}, about which the votes"
                " disagree; set judge.fallback to zero where prompts have no answer."
            )
        return 2.0 * found - 1.0
