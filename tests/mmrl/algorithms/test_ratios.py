"""Ratio levels: values and gradients by hand."""

import pytest
import torch

from mmrl.algorithms.ratios import RATIO_LEVELS

COUNTS = torch.tensor([[[True, True, False], [True, False, False]]])
OLD = torch.tensor([[[-1.0, -2.0, 9.0], [-4.0, 9.0, 9.0]]])


def new() -> torch.Tensor:
    return torch.tensor([[[-0.5, -3.0, 5.0], [-3.0, 5.0, 5.0]]], requires_grad=True)


def test_the_sequence_level_is_the_mean_over_the_counted_entries_of_a_row() -> None:
    values = new()
    ratio = RATIO_LEVELS["sequence"].log_ratio(values, OLD, COUNTS)
    assert ratio.tolist() == [[[-0.25, -0.25, 0.0], [1.0, 0.0, 0.0]]]
    ratio[0, 0, 0].backward()
    assert values.grad is not None
    assert values.grad.tolist() == [[[0.5, 0.5, 0.0], [0.0, 0.0, 0.0]]]


def test_without_a_ratio_the_value_is_one_and_the_gradient_that_of_the_logprob() -> None:
    values = new()
    ratio = RATIO_LEVELS["none"].log_ratio(values, OLD, COUNTS).exp()
    assert bool((ratio == 1).all())
    ratio.sum().backward()
    assert values.grad is not None and torch.equal(values.grad, COUNTS.float())


@pytest.mark.parametrize("level", sorted(RATIO_LEVELS))
def test_equal_policies_have_ratio_one_at_every_level(level: str) -> None:
    blocks = torch.tensor([[0, 0, 1], [0, 0, 1]])
    log_ratio = RATIO_LEVELS[level].log_ratio(OLD.clone(), OLD, COUNTS, None, blocks)
    assert bool((log_ratio.exp() == 1).all())


# two passes over one rollout of four positions in two blocks
TWO = torch.tensor([[[True, True, False, False]], [[True, False, True, True]]])
DIFFERENCE = torch.tensor([[[0.1, 0.3, 9.0, 9.0]], [[0.5, 9.0, 1.0, 3.0]]])


@pytest.mark.parametrize(
    ("level", "expected"),
    [
        ("token", [[0.1, 0.3, 0.0, 0.0], [0.5, 0.0, 1.0, 3.0]]),
        ("step", [[0.2, 0.2, 0.0, 0.0], [1.5, 0.0, 1.5, 1.5]]),
        ("block", [[0.3, 0.3, 0.0, 0.0], [0.3, 0.0, 2.0, 2.0]]),
        ("sequence", [[0.98, 0.98, 0.0, 0.0], [0.98, 0.0, 0.98, 0.98]]),
    ],
)
def test_each_level_takes_its_own_mean(level: str, expected: list[list[float]]) -> None:
    blocks = torch.tensor([[0, 0, 1, 1]])
    old = torch.full((2, 1, 4), -5.0)
    ratio = RATIO_LEVELS[level].log_ratio(old + DIFFERENCE, old, TWO, None, blocks)
    torch.testing.assert_close(ratio[:, 0], torch.tensor(expected))
