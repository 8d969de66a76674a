"""Fork-dLLM (arXiv 2609.39859): certain tokens side by side, an uncertain one from left to right.

A step writes every position of the block whose most likely token has at least the probability
`threshold`. Where there is none, it draws the token of the leftmost open position: a fork. What is
certain is written without a draw, so the state alone says which positions those are, and a fork is
an ordinary draw whose log-prob is exact; strategy `forks` scores these alone. In its last step a
block writes all that is open, and draws what is not certain.

Deviations: the paper draws at every position, and a drawn token is certain where its probability
is above the threshold, so that a fork tells of the other draws too; its ablation finds no
difference to certain tokens without a draw.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mmrl.generation.masked.samplers.confidence import ThresholdConfig
from mmrl.generation.masked.samplers.rule import Choice, Prediction, Rule, State, all_open

if TYPE_CHECKING:
    from torch import Tensor

    from mmrl.generation.tokens.positions import Positions


def draw_uncertain(prediction: Prediction, uniforms: Tensor | None) -> tuple[Tensor, Tensor]:
    """The most likely columns [N] where they are certain, and drawn ones elsewhere; [N] bool, which
    are drawn."""
    best, columns = prediction.draw(None), prediction.draw(uniforms)
    drawn = prediction.own_probability(best) < prediction.config.threshold
    return columns.where(drawn, best), drawn


def write_certain_or_leftmost(
    state: State, where: Positions, choice: Choice, config: ThresholdConfig
) -> Tensor:
    """[N] bool: the positions that are certain, the leftmost of a row without any."""
    if state.last:
        return where.take(state.masked)
    certain = where.spread(~choice.drawn, False)
    leftmost = state.masked & (state.masked.cumsum(1) == 1)
    return where.take(certain | (leftmost & ~certain.any(1, keepdim=True)))


FORK = Rule(all_open, write_certain_or_leftmost, ThresholdConfig, draw=draw_uncertain)
