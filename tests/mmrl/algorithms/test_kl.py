"""KL estimators: closed forms, sign, and the divergence they estimate."""

import math

import pytest
import torch

from mmrl.algorithms.ratios import KL

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
