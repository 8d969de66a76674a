"""What a commit rule sees of the denoising loop, and what it answers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from torch import Generator, Tensor

from mmrl.samplers.noise import uniform
from mmrl.samplers.schedule import alpha


@dataclass
class State:
    """One denoising step of one block; without blocks the response is the only block.

    Attributes:
        step: 0 .. steps - 1, counted within the block.
        steps: of the block.
        schedule: name of the masking schedule.
        temperature: of the rule's own noise.
        response: [B, L] bool, positions of the block.
        masked: [B, L] bool, those still unwritten.
        seeds: one per row, empty with `rng: reference`.
        reference: the single generator of `rng: reference`, or None.
        opened: [B, L] bool, positions that were unwritten when the block began.
        first: number of the block's first step among all steps.
        columns: half-open range of canvas columns that this step feeds to the network.
        draws: how often the public sampler draws its noise in this step; the last draw counts.
    """

    step: int
    steps: int
    schedule: str
    temperature: float
    response: Tensor
    masked: Tensor
    seeds: list[int]
    reference: Generator | None = None
    opened: Tensor | None = None
    first: int = 0
    columns: tuple[int, int] = (0, 0)
    draws: int = 1
    _drawn: dict[str, Tensor] = field(default_factory=dict)

    def alpha(self, step: int) -> Tensor:
        """Share of positions masked after `step` steps."""
        return alpha(self.schedule, step, self.steps)

    def uniform(self, purpose: str) -> Tensor:
        """[B, L] float32 uniforms of this step, drawn once per purpose."""
        if purpose not in self._drawn:
            number = self.first + self.step
            self._drawn[purpose] = uniform(self.seeds, self.response, number, purpose)
        return self._drawn[purpose]


class Proposal(NamedTuple):
    """Answer of a rule for the N positions whose logits were computed.

    `columns` [N] int64: column (token id minus `vocab[0]`) proposed at each.
    `written` [N] bool: whether this step writes it.
    """

    columns: Tensor
    written: Tensor
