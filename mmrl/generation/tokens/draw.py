"""The distribution that tokens are drawn from."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from mmrl.config import Settings, above, at_least

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(kw_only=True)
class DrawConfig(Settings):
    """How tokens are drawn from logits."""

    temperature: Annotated[float, at_least(0)] = 1.0
    """Divides the logits before the token draw; 0 is greedy, the most likely token."""
    top_k: Annotated[int, at_least(0)] = 0
    """Only the k most likely tokens can be drawn; 0 keeps all."""
    top_p: Annotated[float, above(0, up_to=1)] = 1.0
    """Only the most likely tokens that make up this probability can be drawn."""


def forbid(logits: Tensor, columns: Iterable[int]) -> Tensor:
    """The logits [N, C] with -inf, in place, in some columns."""
    for column in columns:
        logits[:, column] = -float("inf")
    return logits


def filter_logits(logits: Tensor, config: DrawConfig) -> Tensor:
    """Logits [N, C] after temperature, top-k and top-p; excluded columns become -inf."""
    nothing = -float("inf")
    if config.temperature == 0:
        best = logits.argmax(-1, keepdim=True)
        return logits.new_full(logits.shape, nothing).scatter_(-1, best, 0.0)
    if config.temperature != 1:
        logits = logits / config.temperature
    if 0 < config.top_k < logits.shape[-1]:
        floor = logits.topk(config.top_k, dim=-1).values[..., -1:]
        logits = logits.masked_fill(logits < floor, nothing)
    if config.top_p < 1:
        ordered, order = logits.sort(dim=-1, descending=True)
        probs = ordered.softmax(-1)
        # a token stays when the more likely ones leave room, so the most likely always does
        out = probs.cumsum(-1) - probs >= config.top_p
        logits = logits.masked_fill(out.scatter(-1, order, out), nothing)
    return logits
