"""Passes over finished canvases, and what a policy answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from torch import Tensor
    from typing_extensions import Self


class Query(Protocol):
    """What K passes show the policy of B finished canvases; one class per way of asking."""

    def map(self, change: Callable[[Tensor], Tensor], /) -> Self:
        """The query with its tensors, [K, B, …] each, changed."""
        ...

    @property
    def show(self) -> Callable[..., tuple[Any, Tensor]]:
        """What a pass shows of a canvas, for the scoring of its kind."""
        ...


@dataclass
class Passes:
    """K passes over a batch of finished canvases, drawn once and shared by all policies.

    Attributes:
        query: what each pass shows the policy.
        scored: [K, B, N] bool, actions whose log-probs count in this pass.
        weight: [K, B, N] float32; the mean over passes of the weighted sum of scores estimates the
            log-likelihood of the response.
        length: [B] int64, number of counted actions of a rollout; None for those scored in any
            pass.
        blocks: [B, N] int64, the block of each response position, -1 elsewhere; None without.
        steps: [B, N] int64, ordered as the steps in which actions were taken, where a pass
            scores several steps; None where the passes are in this order.
        factor: [B, N] float32, what the policy's term of each action is multiplied by, not its KL;
            None for 1.
    """

    query: Query
    scored: Tensor
    weight: Tensor
    length: Tensor | None = None
    blocks: Tensor | None = None
    steps: Tensor | None = None
    factor: Tensor | None = None

    def __len__(self) -> int:
        return self.scored.shape[0]

    def __getitem__(self, rows: slice | Tensor) -> Passes:
        """The same draws for some rows of the batch."""
        names = ("length", "blocks", "steps", "factor")
        rest = {name: _take(getattr(self, name), rows) for name in names}
        return replace(self._map(lambda each: each[:, rows]), **rest)

    def drop_columns(self, first: int) -> Passes:
        """The same draws without the first columns."""
        kept = (..., slice(first, None))
        rest = {name: _take(getattr(self, name), kept) for name in ("blocks", "steps", "factor")}
        return replace(self._map(lambda each: each[kept]), **rest)

    def select_draws(self, draws: slice) -> Passes:
        """Select draws for all rows."""
        return self._map(lambda each: each[draws])

    def exclude_rows(self, rows: Tensor) -> Passes:
        """Score nothing in some rows ([B] bool); the draws stay."""
        kept = ~rows[:, None]
        return replace(self, scored=self.scored & kept, weight=self.weight * kept)

    def restrict_to(self, actions: Tensor) -> Passes:
        """Score only some of the actions ([K, B, N] bool). Draws of a row that then score nothing
        are moved to the end, and dropped where they do so in all rows."""
        scored = self.scored & actions
        used = scored.any(-1)
        number = max(1, int(used.sum(0).max()))
        first = used.byte().argsort(dim=0, descending=True, stable=True)[:number]

        def reorder(each: Tensor) -> Tensor:
            places = first.view(*first.shape, *[1] * (each.dim() - 2))
            return each.gather(0, places.expand(-1, *each.shape[1:]))

        return replace(self, scored=scored, weight=self.weight * scored)._map(reorder)

    def pad_draws(self, number: int) -> Passes:
        """Add draws up to `number` that score nothing; the estimate stays the same."""
        import torch

        more = number - len(self)
        scaled = replace(self, weight=self.weight * (number / len(self)))
        return scaled._map(lambda x: torch.cat((x, x.new_zeros(more, *x.shape[1:]))))

    def _map(self, change: Callable[[Tensor], Tensor]) -> Passes:
        scored, weight = change(self.scored), change(self.weight)
        return replace(self, query=self.query.map(change), scored=scored, weight=weight)

    @property
    def tokens(self) -> Tensor:
        """[B] int64: number of counted actions of each rollout."""
        return self.scored.any(0).sum(-1) if self.length is None else self.length


class Gaussian(NamedTuple):
    """The distributions of actions that are steps of a latent, one action of a row in each pass.

    Attributes:
        mean: [K, B, D] float32 of the D numbers of a latent, 0 beyond those of a smaller one.
        deviation: [K, B] float32, of each number.
        interval: [K, B] float32, by how much the noise level falls in the step.
        size: [B] int64, numbers of each row's latent.
    """

    mean: Tensor
    deviation: Tensor
    interval: Tensor
    size: Tensor


class Prediction(NamedTuple):
    """What a policy predicts of finished latents that are noised again, one level in each pass; or
    of the states before recorded steps, whose true velocity is not known and counts as 0.

    Attributes:
        error: [K, B, D] float32, the predicted velocity minus the true one, noise - clean latent;
            0 beyond the numbers of a smaller one. The clean prediction is off by -sigma error.
        sigma: [K, B] float32, the noise level.
        size: [B] int64, numbers of each row's latent.
    """

    error: Tensor
    sigma: Tensor
    size: Tensor

    def mean(self, values: Tensor) -> Tensor:
        """[K, B]: the mean of values [K, B, D] over the numbers of each row's latent."""
        return values.sum(-1) / self.size


class Scores(NamedTuple):
    """What a policy says of the scored actions of K passes over B rows, [K, B, N] float32 each, 0
    elsewhere.

    `logprobs` of the actions; `entropy` of their distributions, detached, and None for latents, of
    which a pass gives the `gaussian` of a step, or the `prediction` where they are noised again:
    there the log-prob is minus the error of that, as the strategy weighs it. `finished` [n, B, D]
    are latents that passes have finished again, n copies of each, with their gradient.
    """

    logprobs: Tensor
    entropy: Tensor | None = None
    gaussian: Gaussian | None = None
    prediction: Prediction | None = None
    finished: Tensor | None = None

    def detach(self) -> Scores:
        """The same without a gradient."""
        return self._map(lambda each: each.detach())

    def reduce(self, latents: bool) -> Scores:
        """What a loss compares with: log-probs, and what is said of latents where asked for."""
        kept = self._replace(entropy=None, finished=None)
        return kept if latents else Scores(self.logprobs)

    def select_draws(self, draws: slice) -> Scores:
        """Those of some passes."""
        entropy = _take(self.entropy, draws)
        return self._map(lambda each: each[draws])._replace(entropy=entropy, finished=None)

    def _map(self, change: Callable[[Tensor], Tensor]) -> Scores:
        """The scores with log-probs and what is said of latents changed."""
        gaussian, known = (
            each and type(each)(*map(change, each[:-1]), size=each.size)
            for each in (self.gaussian, self.prediction)
        )
        fixed: Any = {"gaussian": gaussian, "prediction": known}
        return self._replace(logprobs=change(self.logprobs), **fixed)


def _take(tensor: Tensor | None, index: Any) -> Tensor | None:
    return None if tensor is None else tensor[index]
