"""complementary: a random mask and its complement, so that each token is scored once per pair.

coupled-GRPO (arXiv 2506.20639; with `include_full` also a pass that hides everything) and ESPO
(arXiv 2512.03759). l of n positions are hidden, l drawn as in `uniform`, then the other n - l, with
weights n / l and n / (n - l): both numbers run over 1 .. n - 1, and l = n, which leaves nothing for
the second pass, counts double, so that the mean over the pair is the evidence bound over the full
range of levels. The full pass has weight 0 in that estimate and the pair makes up for its place.
"""

from dataclasses import dataclass

from mmrl.estimators.masks.strategy import Draw, RateRangeConfig, Strategy, hide_at, passes_of
from mmrl.types import Passes, Rollout


@dataclass(kw_only=True)
class ComplementaryConfig(RateRangeConfig):
    """Options of complementary masks."""

    include_full: bool = False
    """Whether a complementary pair comes with a pass that hides everything."""


def plan(rollout: Rollout, config: ComplementaryConfig, draw: Draw) -> Passes:
    """`num_draws` pairs, each followed by its full pass where that is included."""
    where = rollout.canvas.scorable
    total = where.sum(-1)
    scale = 1.5 if config.include_full else 1.0
    hidden, weight = [], []
    for _ in range(config.num_draws):
        chosen, counts = hide_at(draw.levels(where), where, config, draw)
        first = (1.0 + (counts >= total)) * total / counts
        second = total / (total - counts).clamp(min=1)
        hidden += [chosen, where & ~chosen]
        weight += [chosen * first[:, None] * scale, (where & ~chosen) * second[:, None] * scale]
        if config.include_full:
            hidden.append(where)
            weight.append(weight[0] * 0)
    return passes_of(rollout.canvas, hidden, weight)


COMPLEMENTARY = Strategy(
    plan,
    ComplementaryConfig,
    lambda config, steps, length: config.num_draws * (2 + config.include_full),
)
