"""What the network predicts at the positions a step may write, and the sampler's distribution."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from mmrl.samplers.settings import SamplerConfig


@dataclass
class Prediction:
    """Logits of one step.

    Attributes:
        logits: [N, C], guidance applied, in the network's precision.
        settings: of the sampler.
        mask_column: column of the mask token, None where it is no column.
        stops: columns of the tokens that end a text.
    """

    logits: Tensor
    settings: SamplerConfig
    mask_column: int | None = None
    stops: tuple[int, ...] = ()

    @cached_property
    def logp(self) -> Tensor:
        """[N, C] float32, or float64 logits': log-probabilities that tokens are drawn with."""
        wide = torch.promote_types(self.logits.dtype, torch.float32)
        return filtered(self.logits.to(wide), self.settings).log_softmax(-1)

    @cached_property
    def probs(self) -> Tensor:
        """[N, C] in that dtype: probabilities that tokens are drawn with."""
        return self.logp.exp()

    def chosen(self, written: Tensor, columns: Tensor) -> Tensor:
        """[n] float32: log-probs of the columns [n] at the n True entries of `written` [N]."""
        if self.settings.temperature == 0:
            return torch.zeros(len(columns), device=columns.device)
        return self.logp[written].gather(-1, columns.unsqueeze(-1)).squeeze(-1).float()

    def certain(self, dtype: torch.dtype) -> Tensor:
        """[N, C]: the model's own probabilities, that positions are ranked by.

        Temperature and filters are left out, as in the public samplers. With `eos: last` the ends
        of a text are left out too.
        """
        logits = self.logits.to(dtype)
        if self.settings.eos == "last":
            ends = torch.tensor(self.stops, device=logits.device)
            logits = logits.index_fill(-1, ends, -torch.inf)
        return logits.softmax(-1)


def filtered(logits: Tensor, config: SamplerConfig) -> Tensor:
    """Logits [N, C] after temperature, top-k and top-p; excluded columns become -inf."""
    if config.temperature == 0:
        best = logits.argmax(-1, keepdim=True)
        return torch.full_like(logits, -torch.inf).scatter_(-1, best, 0.0)
    if config.temperature != 1:
        logits = logits / config.temperature
    if 0 < config.top_k < logits.shape[-1]:
        floor = logits.topk(config.top_k, dim=-1).values[..., -1:]
        logits = logits.masked_fill(logits < floor, -torch.inf)
    if config.top_p < 1:
        ordered, order = logits.sort(dim=-1, descending=True)
        probs = ordered.softmax(-1)
        # a token stays when the likelier ones before it leave room, so the likeliest always does
        out = probs.cumsum(-1) - probs >= config.top_p
        logits = logits.masked_fill(out.scatter(-1, order, out), -torch.inf)
    return logits
