"""Ratio levels: values and gradients by hand."""

import pytest
import torch

from mmrl.algorithms.ratios import RATIO_LEVELS

COUNTS = torch.tensor([[[True, True, False], [True, False, False]]])
OLD = torch.tensor([[[-1.0, -2.0, 9.0], [-4.0, 9.0, 9.0]]])


def new() -> torch.Tensor:
    return torch.tensor([[[-0.5, -3.0, 5.0], [-3.0, 5.0, 5.0]]], requires_grad=True)


def test_the_token_level_is_the_difference_at_each_counted_entry() -> None:
    ratio = RATIO_LEVELS["token"](new(), OLD, COUNTS)
    assert ratio.tolist() == [[[0.5, -1.0, 0.0], [1.0, 0.0, 0.0]]]


def test_the_sequence_level_is_the_mean_over_the_counted_entries_of_a_row() -> None:
    values = new()
    ratio = RATIO_LEVELS["sequence"](values, OLD, COUNTS)
    assert ratio.tolist() == [[[-0.25, -0.25, 0.0], [1.0, 0.0, 0.0]]]
    ratio[0, 0, 0].backward()
    assert values.grad is not None
    assert values.grad.tolist() == [[[0.5, 0.5, 0.0], [0.0, 0.0, 0.0]]]


def test_without_a_ratio_the_value_is_one_and_the_gradient_that_of_the_logprob() -> None:
    values = new()
    ratio = RATIO_LEVELS["none"](values, OLD, COUNTS).exp()
    assert bool((ratio == 1).all())
    ratio.sum().backward()
    assert values.grad is not None and torch.equal(values.grad, COUNTS.float())


@pytest.mark.parametrize("level", sorted(RATIO_LEVELS))
def test_equal_policies_have_ratio_one_at_every_level(level: str) -> None:
    log_ratio = RATIO_LEVELS[level](OLD.clone(), OLD, COUNTS)
    assert bool((log_ratio.exp() == 1).all())
