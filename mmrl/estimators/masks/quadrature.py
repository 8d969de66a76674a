"""quadrature: fixed levels at the nodes of Gauss-Legendre quadrature (GDPO, arXiv 2510.08554).

The evidence bound is an integral over the level t of a smooth function, (1 / t) times the expected
score at level t, so a few nodes t_n with weights omega_n replace the random level; only the masks
are drawn. For n positions that function is a polynomial of degree n - 1, hence K nodes are exact in
t up to n = 2 K. The range is `min_mask_rate` .. `max_mask_rate`.
"""

from mmrl.estimators.masks.strategy import Draw, RateRangeConfig, Strategy, at_least_one, passes_of
from mmrl.types import Passes, Rollout


def nodes(config: RateRangeConfig) -> list[tuple[float, float]]:
    """`num_draws` pairs (t_n, omega_n), the omegas adding up to 1."""
    from numpy.polynomial.legendre import leggauss

    points, weights = leggauss(config.num_draws)
    low, width = config.min_mask_rate, config.max_mask_rate - config.min_mask_rate
    return [(low + width * (x + 1) / 2, w / 2) for x, w in zip(points, weights, strict=True)]


def plan(rollout: Rollout, config: RateRangeConfig, draw: Draw) -> Passes:
    """One pass per node; the score of pass n counts K omega_n / t_n in the mean over passes.

    A row that hides nothing hides one position, so that it is scored, with weight 0.
    """
    where = rollout.canvas.scorable
    hidden, weight = [], []
    for rate, share in nodes(config):
        uniforms = draw.uniforms(where)
        chosen = (uniforms < rate) & where
        hidden.append(at_least_one(chosen, uniforms, where))
        weight.append(chosen * (config.num_draws * share / rate))
    return passes_of(rollout.canvas, hidden, weight)


QUADRATURE = Strategy(plan, RateRangeConfig)
