"""Bytes of logits and of what is computed from them, whole or in parts."""

from mmrl.models.network.network import Network
from mmrl.runtime.logits_budget import rows_at_once, rows_scored_at_once
from mmrl.samplers import RULES, SamplerConfig


def hold_logits(
    network: Network, rows: int, columns: int, held: int = 1, sides: int = 1
) -> tuple[float, float]:
    """Bytes in an update: those kept for the backward pass, and those beside them.

    In parts, what is kept are two gradients of the hidden states, or the hidden states of a trained
    head; beside them are log-probs, their exponential and a product of both.

    Args:
        network: whose logits they are.
        rows: scored positions of a forward pass.
        columns: of their vocabulary.
        held: forward passes whose gradients are computed together.
        sides: of guidance.
    """
    size = 4.0 * rows * columns * sides
    part = rows_scored_at_once(columns)
    if network.can_reduce and rows > part:
        return held * 2 * 4.0 * rows * network.width, (3.0 + (sides > 1)) * 4 * part * columns
    return held * size, 3 * size


def count_logits(
    network: Network, sampler: SamplerConfig, rows: int, response: int, columns: int
) -> float:
    """Bytes in a step of a sampler.

    Args:
        network: whose logits they are.
        sampler: its settings.
        rows: sampled at once, without unconditional twins.
        response: positions of each.
        columns: of its vocabulary.
    """
    positions = rows * min(response, sampler.block_size or response)
    streams = RULES[sampler.name].streams and network.can_reduce and sampler.cache != "refresh"
    if streams and positions > rows_at_once(columns):
        positions = rows_at_once(columns)
    return 4 * 4.0 * positions * columns * sampler.guidance.sides
