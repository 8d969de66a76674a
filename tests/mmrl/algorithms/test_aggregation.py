"""Aggregations: weights by hand, and independence of how a batch is cut."""

import pytest
import torch

from mmrl.algorithms.aggregation import AGGREGATIONS, BatchSize

# two draws over two rollouts of four response positions: 3 and 1 scored, then 2 and 4
COUNTS = torch.tensor(
    [[[1, 1, 1, 0], [0, 0, 1, 0]], [[1, 0, 0, 1], [1, 1, 1, 1]]], dtype=torch.bool
)
SIZE = BatchSize(rollouts=2, tokens=10, entries=10, longest=4)


def test_grpo_averages_in_a_row_then_over_rows_and_draws() -> None:
    weights = AGGREGATIONS["grpo"].weights(COUNTS, SIZE)
    per_row = torch.tensor([[[1 / 3], [1.0]], [[1 / 2], [1 / 4]]]) / 4
    torch.testing.assert_close(weights, per_row * COUNTS)


def test_dapo_averages_over_all_entries() -> None:
    torch.testing.assert_close(AGGREGATIONS["dapo"].weights(COUNTS, SIZE), COUNTS / 10)


def test_dr_grpo_divides_by_a_constant() -> None:
    torch.testing.assert_close(AGGREGATIONS["dr_grpo"].weights(COUNTS, SIZE), COUNTS / (2 * 4 * 2))


@pytest.mark.parametrize("name", sorted(AGGREGATIONS))
def test_a_part_of_the_batch_gets_the_weights_it_has_in_the_whole(name: str) -> None:
    whole = AGGREGATIONS[name].weights(COUNTS, SIZE)
    parts = [AGGREGATIONS[name].weights(COUNTS[:, row : row + 1], SIZE) for row in range(2)]
    assert torch.equal(torch.cat(parts, 1), whole)


def test_gspo_averages_over_all_passes_of_a_rollout() -> None:
    weights = AGGREGATIONS["gspo"].weights(COUNTS, SIZE)
    per_row = torch.tensor([[[1 / 5], [1 / 5]], [[1 / 5], [1 / 5]]]) / 2
    torch.testing.assert_close(weights, per_row * COUNTS)


def test_rows_without_an_entry_in_a_pass_are_not_averaged_over() -> None:
    counts = COUNTS.clone()
    counts[1, 0] = False
    size = BatchSize(rollouts=2, tokens=8, entries=8, longest=4, rows=3, token_rows=3)
    weights = AGGREGATIONS["grpo"].weights(counts, size)
    per_row = torch.tensor([[[1 / 3], [1.0]], [[0.0], [1 / 4]]]) / 3
    torch.testing.assert_close(weights, per_row * counts)
    assert float(weights.sum()) == pytest.approx(1.0)
