"""ar_like: MaskGRPO's own masks, and an unbiased estimate of what they stand for."""

import pytest
import torch
from torch import Tensor

from mmrl.estimators.masks.rates import keep_probability
from mmrl.types import Canvas
from tests.mmrl.estimators.exact import assert_mean, estimates, table
from tests.mmrl.estimators.test_masks import behind, draw

# which of 16 completion tokens MaskGRPO's trainer hides at three rates, after five prompt tokens,
# with one generator of seed 1234 over rows of 21
HIDDEN = {
    0.3: [".......##.#.####", ".........####.##"],
    0.625: ["...#.####.######", "..#.#.#.#####.##"],
    0.999: ["################", "################"],
}


@pytest.mark.parametrize(
    ("rate", "iteration", "num_iterations"), [(0.3, 2, 10), (0.625, 4, 8), (0.999, 0, 1)]
)
def test_the_masks_are_mask_grpos(
    mmada_cases: dict[str, Tensor], rate: float, iteration: int, num_iterations: int
) -> None:
    tokens = mmada_cases["maskgrpo/remask/tokens"]
    response = ~mmada_cases["maskgrpo/remask/prompt"].expand(2, -1)
    canvas = Canvas(tokens, response, None, (0, 134656), 126336)
    seeds = [behind(1234, row * 21 + 5) for row in range(2)]
    passes = draw(canvas, seeds, "ar_like", iteration, num_iterations, min_mask_rate=0.0)
    rows = ["".join("#" if h else "." for h in row[5:]) for row in passes.hidden[0].tolist()]
    assert rows == HIDDEN[rate]


def test_the_expectation_of_the_weighted_sum_is_the_exact_one_over_all_masks() -> None:
    n, rate, exact = 3, 0.7, 0.0
    keep = keep_probability(torch.ones(1, n, dtype=torch.bool), rate)[0].tolist()
    for mask in range(2**n):
        hidden = [i for i in range(n) if mask >> i & 1]
        chance = 1.0
        for i in range(n):
            chance *= 1 - keep[i] if i in hidden else keep[i]
        exact += chance * sum(float(table(n)[mask][i]) / (1 - keep[i]) for i in hidden)
    options = {"min_mask_rate": 0.4, "iteration": 0, "num_iterations": 2}
    assert_mean(estimates("ar_like", n, **options), exact)
