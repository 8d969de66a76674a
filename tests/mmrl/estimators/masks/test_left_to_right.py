"""left_to_right: the exact log-likelihood of writing from left to right."""

import torch

from mmrl.algorithms.bounds import BOUNDS
from tests.mmrl.estimators.exact import drawn, looked_up, table

N = 4
EXACT = [0b1111 << i & 0b1111 for i in range(N)]


def chain() -> float:
    """sum_i log p(y_i | x, y_<i)."""
    return sum(float(table(N)[hidden][i]) for i, hidden in enumerate(EXACT))


def test_the_sum_over_passes_is_the_exact_log_likelihood() -> None:
    passes = drawn("left_to_right", N, 1)
    assert len(passes) == N
    value = BOUNDS["elbo"](looked_up(passes, N), passes).values
    torch.testing.assert_close(value.flatten(), torch.tensor([chain()]))


def test_each_pass_hides_its_position_and_all_behind_it() -> None:
    passes = drawn("left_to_right", N, 1)
    for i in range(N):
        assert passes.query.mask[i, 0, 4:8].tolist() == [j >= i for j in range(N)]
        assert passes.scored[i, 0, 4:8].tolist() == [j == i for j in range(N)]


def test_positions_can_share_a_pass() -> None:
    passes = drawn("left_to_right", N, 1, slice_size=3)
    assert passes.scored[:, 0, 4:8].tolist() == [[True] * 3 + [False], [False] * 3 + [True]]
