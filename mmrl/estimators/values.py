"""Values of the states that a finished canvas is scored from, by a value model of its own."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from mmrl.estimators.scoring import rows_to_ask
from mmrl.samplers.logits import embeddings
from mmrl.types import Canvas, Passes


def state_values(model: Callable[..., Tensor], canvas: Canvas, passes: Passes) -> Tensor:
    """What is still to be expected at each scored position, from the state its pass begins with.

    One forward per pass, over the rows it scores, of the conditional canvas: guidance is a matter
    of which token is written, not of what the state is worth.

    Args:
        model: `models.network.value_head.ValueNetwork`, possibly wrapped.
        canvas: B finished rows.
        passes: K mask draws over them.

    Returns:
        [K, B, L] float32, 0 where not scored.
    """
    values = torch.zeros(passes.scored.shape, device=canvas.tokens.device)
    for k in range(len(passes)):
        rows = rows_to_ask(passes.scored[k])
        part, some = (canvas, passes) if rows is None else (canvas[rows], passes[rows])
        masked = part.hide(some.hidden[k])
        found = model(
            input_ids=masked.tokens,
            attention_mask=part.attend,
            positions=some.scored[k],
            **embeddings([masked]),
        )
        index = torch.zeros_like(passes.scored)
        index[k] = passes.scored[k]
        values = values.masked_scatter(index, found)
    return values
