"""A finished canvas, and how it was written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor


@dataclass
class Rollout:
    """A finished canvas and how it was written.

    Attributes:
        canvas: the finished canvas, a `Canvas` of its kind.
        trace: [B, N] int64, the step in which each action was taken, -1 where none was: the
            position was given.
        logprobs: [B, N] float32, log-probability of each action under the sampler's distribution
            (after guidance, temperature and filters) when it was taken; 0 where none was, or where
            a position was filled in after the end of a text. With a cache they may come from stale
            keys and values, so an update must not use them as those of the policy.
        settings: the sampler configuration.
        seeds: [B] int64, from which all draws of a row follow; None where it was not
            sampled here.
        forwards: forward passes over the batch; the branches of a guided one count once.
        drawn: [B, N] bool, actions that were drawn; False where none was taken, and where the
            sampler took the most likely one because it was certain. None where all were.
        versions: [B] int64, the version of the policy that wrote each row, a count of updates; None
            where it is not known.
    """

    canvas: Any
    trace: Tensor
    logprobs: Tensor
    settings: dict[str, Any]
    seeds: Tensor | None = None
    forwards: int = 0
    drawn: Tensor | None = None
    versions: Tensor | None = None

    def __len__(self) -> int:
        return len(self.canvas)

    @property
    def blocks(self) -> Tensor | None:
        """[B, L] int64: the block that a response position was written in, from 0, -1 elsewhere;
        None where responses are not divided."""
        return self.canvas.split(self.settings.get("block_size"))

    def __getitem__(self, rows: slice | Tensor) -> Rollout:
        """The rollout of some rows."""
        parts = ("canvas", "trace", "logprobs", "seeds", "drawn", "versions")
        own = ((name, getattr(self, name)) for name in parts)
        return replace(self, **{name: None if x is None else x[rows] for name, x in own})

    @staticmethod
    def join(parts: Sequence[Rollout]) -> Rollout:
        """Rollouts of one task, sampled in several batches, as one. Shorter rows are padded on the
        left, where they have no action."""
        import torch
        import torch.nn.functional as F

        number = max(part.trace.shape[1] for part in parts)

        def join(name: str, fill: int) -> Tensor:
            each = [getattr(part, name) for part in parts]
            return torch.cat([F.pad(x, (number - x.shape[1], 0), value=fill) for x in each])

        seeds = [part.seeds for part in parts if part.seeds is not None]
        versions = [part.versions for part in parts if part.versions is not None]
        return replace(
            parts[0],
            canvas=type(parts[0].canvas).join([part.canvas for part in parts]),
            trace=join("trace", -1),
            logprobs=join("logprobs", 0),
            seeds=torch.cat(seeds) if seeds else None,
            forwards=sum(part.forwards for part in parts),
            drawn=None if parts[0].drawn is None else join("drawn", 0),
            versions=torch.cat(versions) if versions else None,
        )
