"""A reward that is chosen by the metadata of each prompt, as UniRL's `per_domain`.

    name: per_domain
    column: domain
    rewards:
      text: {name: ocr}
      people: {name: hps, version: v2.1, scale: 3}

A prompt whose column has another value, or none, has no score. Weight, scale and offset of an entry
hold within its domain; only one reward scores a sample.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from mmrl.config import check
from mmrl.rewards.registry.interface import ChecksMetadata, complete, outcomes
from mmrl.rewards.scoring.terms import Term, build_term, check_entries
from mmrl.types import Sample


@dataclass(kw_only=True, eq=False)
class PerDomainReward:
    """Scores each sample by the reward of its domain. Raises ConfigError: no reward, an entry that
    is wrong, or a reward that judges chunks."""

    needs: ClassVar[tuple[str, ...]] = ("metadata",)

    rewards: dict[str, Any]
    """Entries of rewards by the value of the column."""
    column: str = "domain"
    """Of the metadata."""

    def __post_init__(self) -> None:
        where = "per_domain.rewards"
        check(bool(self.rewards), where, self.rewards, "a reward for each domain")
        for name, entry in self.rewards.items():
            check_entries([entry], f"{where}.{name}")
        entries = self.rewards.items()
        self.terms: dict[str, Term] = {n: build_term(e, f"{where}.{n}") for n, e in entries}
        for name, term in self.terms.items():
            cutting = getattr(term.reward, "cutting", None)
            allowed = "null: beside the column it holds for all rewards"
            check(term.frames is None, f"{where}.{name}.frames", term.frames, allowed)
            check(cutting is None, f"{where}.{name}.chunk_size", cutting, "null")

    def __call__(self, samples: list[Sample]) -> list[float | None]:
        """The scores, weighed within their domain; None where no domain applies."""
        scores: list[Any] = [None] * len(samples)
        for domain, term in self.terms.items():
            rows = [n for n, each in enumerate(samples) if self._domain(each.metadata) == domain]
            found = outcomes(term.reward, [samples[n] for n in rows]) if rows else []
            for n, score in zip(rows, found, strict=True):
                is_number = isinstance(score, int | float)
                scores[n] = term.contribution(float(score)) if is_number else score
        return complete(scores)

    def check(self, metadata: Mapping[str, Any]) -> None:
        """Raise a ValueError if the reward of a prompt's domain cannot read its metadata."""
        term = self.terms.get(self._domain(metadata))
        if term is not None and isinstance(term.reward, ChecksMetadata):
            term.reward.check(metadata)

    def _domain(self, metadata: Mapping[str, Any]) -> str:
        return str(metadata.get(self.column))
