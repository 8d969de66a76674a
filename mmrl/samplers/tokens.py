"""Which token a position would take: a draw, or the likeliest at temperature 0."""

from __future__ import annotations

import torch
from torch import Tensor

from mmrl.samplers.noise import categorical
from mmrl.samplers.prediction import Prediction
from mmrl.samplers.state import State


def draw(state: State, where: Tensor, prediction: Prediction) -> Tensor:
    """[N] int64 columns for the N True entries of `where`."""
    if prediction.settings.temperature == 0:
        return prediction.logits.argmax(-1)
    return categorical(prediction.probs, state.uniform("token")[where])


def draw_reference(state: State, where: Tensor, prediction: Prediction) -> Tensor:
    """The public draw (LLaDA): argmax of exp(z) / (-log U)^T, U over all that the network computed.

    Nothing is drawn at temperature 0.
    """
    temperature, logits = prediction.settings.temperature, prediction.logits
    if temperature == 0:
        return logits.argmax(-1)
    dtype = getattr(torch, prediction.settings.reference_dtype)
    noise = uniforms(state, where, dtype, logits.shape[-1]).to(logits.device)
    return (logits.to(dtype).exp() / (-torch.log(noise)) ** temperature).argmax(-1)


def uniforms(state: State, where: Tensor, dtype: torch.dtype, *shape: int) -> Tensor:
    """[N, …] uniforms, drawn as [B, columns, …] from the single generator of the batch."""
    start, stop = state.columns
    size = (len(where), stop - start, *shape)
    for _ in range(state.draws):
        drawn = torch.rand(size, dtype=dtype, generator=state.reference)
    return drawn[where[:, start:stop].cpu()]
