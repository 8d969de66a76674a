"""eubo: the formula by hand, the exact expectation, and its place above the evidence bound."""

import math

import pytest
import torch

from mmrl.algorithms.bounds import BOUNDS, UpperBoundConfig
from mmrl.generation.masked.hidden import Hidden
from mmrl.types import Passes
from tests.mmrl.estimators.exact import every_mask, table

N = 3


def upper(beta: float) -> UpperBoundConfig:
    return UpperBoundConfig(eubo_beta=beta)


def exact(beta: float) -> float:
    """(1 / beta) sum_i log E[(n / l) 1{i hidden} p_i^beta] over all masks."""
    total = 0.0
    for i in range(N):
        mean = 0.0
        for mask in range(1, 2**N):
            if mask >> i & 1:
                size = mask.bit_count()
                chance = 1 / (N * math.comb(N, size))
                mean += chance * N / size * math.exp(beta * float(table(N)[mask][i]))
        total += math.log(mean) / beta
    return total


@pytest.mark.parametrize("beta", [1.0, 1.5, 2.0])
def test_with_every_mask_as_a_pass_it_is_the_exact_bound(beta: float) -> None:
    value = BOUNDS["eubo"](*every_mask(N), upper(beta)).values
    assert float(value) == pytest.approx(exact(beta), rel=1e-5)


def test_by_hand_with_a_token_that_was_never_hidden() -> None:
    logprobs = torch.tensor([[[-1.0, -2.0, 0.0]], [[-3.0, 0.0, 0.0]]])
    scored = logprobs < 0
    passes = Passes(Hidden(scored), scored, scored * torch.tensor([2.0, 4.0, 1.0]))
    value = BOUNDS["eubo"](logprobs, passes, upper(2.0)).values
    first = math.log((2 * math.exp(-2.0) + 2 * math.exp(-6.0)) / 2) / 2
    second = math.log(4 * math.exp(-4.0) / 2) / 2
    assert float(value) == pytest.approx(first + second, rel=1e-5)


def test_its_gradient_is_finite_and_only_at_scored_tokens() -> None:
    logprobs = torch.tensor([[[-1.0, -200.0, 0.0]], [[-3.0, 0.0, 0.0]]], requires_grad=True)
    scored = logprobs.detach() < 0
    passes = Passes(Hidden(scored), scored, scored.float())
    BOUNDS["eubo"](logprobs, passes, upper(1.5)).values.sum().backward()
    assert logprobs.grad is not None
    assert torch.equal(logprobs.grad > 0, scored)
    torch.testing.assert_close(logprobs.grad.sum(0)[0], torch.tensor([1.0, 1.0, 0.0]))
