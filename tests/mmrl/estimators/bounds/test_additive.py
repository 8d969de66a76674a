"""additive: a sum over passes that never exceeds the objective it stands for."""

import math

import pytest
import torch
from torch import Tensor

from mmrl.algorithms import AlgorithmConfig, LossInputs, policy_loss
from mmrl.algorithms.aggregation import BatchSize
from mmrl.algorithms.bounds import BOUNDS
from mmrl.generation.masked.hidden import Hidden
from mmrl.types import Passes, Scores
from tests.mmrl.estimators.exact import every_mask, evidence_bound

OLD = torch.tensor([[[-1.0, -2.0], [-1.5, -0.5]], [[-0.7, -3.0], [-2.0, -1.0]]])
SCORED = torch.ones(2, 2, 2, dtype=torch.bool)
WEIGHT = torch.tensor([[[2.0, 1.0]], [[1.0, 3.0]]]).expand(2, 2, 2)
PASSES = Passes(Hidden(SCORED), SCORED, WEIGHT)


def test_the_mean_over_every_mask_is_the_exact_evidence_bound() -> None:
    quantity = BOUNDS["additive"](*every_mask(4))
    assert float(quantity.values.mean()) == pytest.approx(evidence_bound(4), rel=1e-5)


def loss(new: Tensor, advantages: list[float], bound: str) -> Tensor:
    """Of one ratio per rollout, over bound per token, without a clip."""
    level = "step" if bound == "additive" else "sequence"
    row = AlgorithmConfig(bound=bound, ratio_level=level, epsilon=1e9)
    entries = 4 if bound == "additive" else 2
    given = LossInputs(PASSES, Scores(new), torch.tensor(advantages), Scores(OLD))
    return policy_loss(given, row, BatchSize(2, 8, entries, 2))[0]


def test_the_surrogate_by_hand() -> None:
    new = OLD + torch.tensor([[[0.1, 0.2], [-0.1, 0.3]], [[0.0, -0.2], [0.2, 0.1]]])
    # differences of the passes' bounds, per token: rollout 0 gains, rollout 1 loses
    d = [[(2 * 0.1 + 0.2) / 2, (0.0 - 3 * 0.2) / 2], [(-0.2 + 0.3) / 2, (0.2 + 3 * 0.1) / 2]]
    gain = 1.5 * (1 + sum(d[0]) / 2)
    lost = -0.5 * sum(math.exp(x) for x in d[1]) / 2
    assert loss(new, [1.5, -0.5], "additive").item() == pytest.approx(-(gain + lost) / 2)


def test_it_is_a_lower_bound_of_the_sequence_objective() -> None:
    draws = torch.Generator().manual_seed(0)
    for _ in range(50):
        new = OLD + 2 * torch.randn(2, 2, 2, generator=draws)
        advantages = torch.randn(2, generator=draws).tolist()
        # losses: the bound of the objective from below is one of the loss from above
        assert loss(new, advantages, "additive") >= loss(new, advantages, "elbo") - 1e-5


def test_the_gradient_of_one_pass_does_not_depend_on_the_others() -> None:
    new = (OLD + 0.3).requires_grad_()
    [first] = torch.autograd.grad(loss(new, [1.5, -0.5], "additive"), new)
    other = torch.cat((OLD[:1] + 0.3, OLD[1:] - 5.0)).requires_grad_()
    [second] = torch.autograd.grad(loss(other, [1.5, -0.5], "additive"), other)
    assert torch.equal(first[0], second[0]) and not torch.equal(first[1], second[1])


def test_a_large_difference_does_not_overflow_where_the_bound_is_linear() -> None:
    new = (OLD + 1e4).requires_grad_()
    loss(new, [1.0, 1.0], "additive").backward()
    assert new.grad is not None and bool(new.grad.isfinite().all())
