"""What the end of a text does to the rest of its row."""

from __future__ import annotations

import torch
from torch import Tensor

from mmrl.config import ConfigError
from mmrl.types import Canvas, Rollout


def after_end(canvas: Canvas) -> Tensor:
    """[B, L] bool: response positions after the first written end of the text."""
    ends = torch.tensor(canvas.stop_ids, dtype=torch.long, device=canvas.tokens.device)
    ended = (torch.isin(canvas.tokens, ends) & canvas.response).long()
    return canvas.response & (ended.cumsum(1) - ended > 0)


def valid(canvas: Canvas) -> Tensor | None:
    """[B, L] bool: response positions up to and including the end; None where there is no end."""
    return canvas.response & ~after_end(canvas) if canvas.stop_ids else None


def fill(rollout: Rollout, step: int) -> None:
    """Write the open positions after the end of each row, in place, as written at `step`.

    Nothing was sampled there: their log-prob stays 0.
    """
    canvas = rollout.canvas
    rest = after_end(canvas) & canvas.masked
    canvas.tokens[rest] = canvas.stop_ids[0]
    rollout.written_at[rest] = step


def check_end(eos: str, canvas: Canvas) -> None:
    """Raise a ConfigError where an option about the end meets a canvas that has none."""
    if eos != "free" and not canvas.stop_ids:
        raise ConfigError(
            f"sampler.eos is {eos!r} and these completions have no end token; set it to free."
        )
