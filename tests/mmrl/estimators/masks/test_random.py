"""random: the mean over draws is the sum over all masks; the masks are held in test_masks."""

import pytest

from tests.mmrl.estimators.exact import assert_mean, estimates, table


@pytest.mark.parametrize("iteration", [0, 2])
def test_the_mean_over_draws_is_the_exact_sum_over_all_masks(iteration: int) -> None:
    n, rate = 3, 0.2 + 0.8 * (iteration + 1) / 4
    exact = 0.0
    for mask in range(1, 2**n):
        size = mask.bit_count()
        exact += rate**size * (1 - rate) ** (n - size) * float(table(n)[mask].sum())
    # a draw that hides nothing hides one position instead, each equally likely
    alone = sum(float(table(n)[1 << i].sum()) for i in range(n)) / n
    exact += (1 - rate) ** n * alone
    options = {"min_mask_rate": 0.2, "iteration": iteration, "num_iterations": 4}
    assert_mean(estimates("random", n, **options), exact)
