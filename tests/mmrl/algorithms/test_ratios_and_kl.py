"""Ratios at their levels, and estimators of the divergence."""

import math

import pytest
import torch

from mmrl.algorithms.ratios import KL, RATIO_LEVELS

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


POLICY = torch.tensor([-1.0, -2.0, -0.5])
REFERENCE = torch.tensor([-1.5, -1.0, -0.5])


def test_estimators_by_hand() -> None:
    torch.testing.assert_close(KL["k1"](POLICY, REFERENCE), torch.tensor([0.5, -1.0, 0.0]))
    torch.testing.assert_close(KL["k2"](POLICY, REFERENCE), torch.tensor([0.125, 0.5, 0.0]))
    third = torch.tensor([math.exp(-0.5) + 0.5 - 1, math.exp(1.0) - 1 - 1, 0.0])
    torch.testing.assert_close(KL["k3"](POLICY, REFERENCE), third)


@pytest.mark.parametrize("name", ["k1", "k3"])
def test_the_mean_over_the_policy_is_the_divergence(name: str) -> None:
    policy, reference = (torch.randn(7, generator=torch.Generator().manual_seed(n)) for n in (1, 2))
    logp, logq = policy.double().log_softmax(0), reference.double().log_softmax(0)
    exact = (logp.exp() * (logp - logq)).sum()
    torch.testing.assert_close((logp.exp() * KL[name](logp, logq)).sum(), exact)


def test_the_mean_gradient_of_k2_is_that_of_the_divergence() -> None:
    logits = torch.randn(7, generator=torch.Generator().manual_seed(1)).double().requires_grad_()
    logq = torch.randn(7, generator=torch.Generator().manual_seed(2)).double().log_softmax(0)
    logp = logits.log_softmax(0)
    [exact] = torch.autograd.grad((logp.exp() * (logp - logq)).sum(), logits, retain_graph=True)
    estimated = (logp.exp().detach() * KL["k2"](logp, logq)).sum()
    torch.testing.assert_close(torch.autograd.grad(estimated, logits)[0], exact)
