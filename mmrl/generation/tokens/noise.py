"""Random numbers of a sampler: one uniform per position and purpose, from a seed per row.

What a row gets does not depend on its neighbours, on the vocabulary or on which positions are still
open.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mmrl.randomness import as_generators, stable_seed

if TYPE_CHECKING:
    from torch import Generator, Tensor

    from mmrl.generation.tokens.positions import Positions

AHEAD = 2**22
"""Numbers drawn at a time for a GPU: 16 MB."""


def row_seeds(generator: Generator | Sequence[Generator], rows: int) -> list[int]:
    """One seed per row, drawn from its own generator or from the single one of the batch. Raises
    TypeError: see `as_generators`; ValueError: a sequence of another length than the batch."""
    import torch

    own, single = as_generators(generator), not isinstance(generator, Sequence)
    if not single and len(own) != rows:
        raise ValueError(f"{len(own)} generators for {rows} rows; give one per row, or one")
    count = (rows if single else 1,)
    draws = (torch.randint(2**62, count, generator=each, device=each.device) for each in own)
    return [seed for some in draws for seed in some.tolist()]


class Draws:
    """Float32 uniforms in [0, 1) for the steps of a block, of all of the rollout, one per position
    and purpose. `begins`: the step of the rollout that is step 0 for each row, where steps are
    counted so.

    A row's numbers follow from its seed, the step and the purpose alone, so a step that draws
    nothing for some rows changes nothing later. Drawn on the CPU, so that a GPU run gets the same;
    there, many steps ahead, so that no step waits for a copy."""

    def __init__(
        self,
        seeds: Sequence[int],
        positions: Positions,
        steps: range,
        begins: Sequence[int] | None = None,
    ) -> None:
        self.seeds, self.positions, self.steps = seeds, positions, steps
        self.begins = [0] * len(seeds) if begins is None else begins
        on_cpu = positions.where.device.type == "cpu"
        self.ahead = 1 if on_cpu else max(1, AHEAD // max(1, len(positions)))
        self.drawn: dict[str, tuple[range, Tensor]] = {}

    def __call__(self, step: int, purpose: str) -> Tensor:
        """[B, L] uniforms of a step at the positions, 0 elsewhere."""
        steps, numbers = self.drawn.get(purpose, (range(0), None))
        if numbers is None or step not in steps:
            steps = range(step, min(step + self.ahead, self.steps.stop))
            numbers = self._draw(steps, purpose)
            self.drawn[purpose] = steps, numbers
        return self.positions.spread(numbers[step - steps.start], 0.0)

    def _draw(self, steps: range, purpose: str) -> Tensor:
        """[S, N] uniforms of some steps, on the device."""
        import torch

        device, source = self.positions.where.device, torch.Generator()
        shape, pinned = (len(steps), len(self.positions)), device.type == "cuda"
        out = torch.empty(shape, pin_memory=pinned)
        for step, row in zip(steps, out, strict=True):
            parts = row.split(self.positions.numbers)
            for seed, begin, part in zip(self.seeds, self.begins, parts, strict=True):
                source.manual_seed(stable_seed(seed, begin + step, purpose))
                torch.rand(len(part), generator=source, out=part)
        return out.to(device, non_blocking=True)


def categorical(probs: Tensor, uniforms: Tensor) -> Tensor:
    """Inverse-CDF draws: [N, C] probabilities and [N] uniforms -> [N] int64 column indices."""
    import torch

    cdf = probs.double().cumsum(-1)
    points = (uniforms.double() * cdf[:, -1]).unsqueeze(-1)
    return torch.searchsorted(cdf, points, right=True).squeeze(-1).clamp(max=probs.shape[-1] - 1)


def gumbel(uniforms: Tensor) -> Tensor:
    """Standard Gumbel noise from uniforms; both logarithms are kept finite by a floor of 1e-20."""
    return -(-uniforms.clamp(min=1e-20).log()).clamp(min=1e-20).log()
