"""What a commit rule sees of the denoising loop, and what it answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from torch import Generator, Tensor

from mmrl.samplers.noise import uniform
from mmrl.samplers.schedule import alpha


@dataclass
class State:
    """One denoising step.

    Attributes:
        step: 0 .. steps - 1.
        steps: S.
        schedule: name of the masking schedule.
        temperature: of the rule's own noise.
        response: [B, L] bool, positions the policy writes.
        masked: [B, L] bool, those still unwritten.
        seeds: one per row, empty with `rng: reference`.
        reference: the single generator of `rng: reference`, or None.
    """

    step: int
    steps: int
    schedule: str
    temperature: float
    response: Tensor
    masked: Tensor
    seeds: list[int]
    reference: Generator | None = None
    _drawn: dict[str, Tensor] = field(default_factory=dict)

    def alpha(self, step: int) -> Tensor:
        """Share of positions masked after `step` steps."""
        return alpha(self.schedule, step, self.steps)

    def uniform(self, purpose: str) -> Tensor:
        """[B, L] float32 uniforms of this step, drawn once per purpose."""
        if purpose not in self._drawn:
            self._drawn[purpose] = uniform(self.seeds, self.response, self.step, purpose)
        return self._drawn[purpose]


class Proposal(NamedTuple):
    """Answer of a rule for the N positions whose logits were computed.

    `columns` [N] int64: column (token id minus `vocab[0]`) proposed at each.
    `written` [N] bool: whether this step writes it.
    """

    columns: Tensor
    written: Tensor


class Rule(NamedTuple):
    """A commit rule: which positions a step may write, and what it writes there.

    `propose_reference` reproduces a public sampler's draws; its logits are computed at every
    response position. `traced`: whether `written_at` tells in which order a canvas was written.
    """

    candidates: Callable[[State], Tensor]
    propose: Callable[[State, Tensor, Tensor], Proposal]
    propose_reference: Callable[[State, Tensor, Tensor], Proposal]
    traced: bool = True
