"""Bounds of a likelihood: numbers by hand, and exact when all masks are passes."""

import math

import pytest
import torch
from torch import Tensor

from mmrl.algorithms import AlgorithmConfig, LossInputs, policy_loss
from mmrl.algorithms.aggregation import BatchSize
from mmrl.algorithms.bounds import BOUNDS, UpperBoundConfig
from mmrl.generation.masked.hidden import Hidden
from mmrl.types import Passes, Scores
from tests.mmrl.estimators.exact import every_mask, evidence_bound, table

LOGPROBS = torch.tensor([[[-1.0, -2.0, 0.0], [0.0, -4.0, -8.0]], [[0.0, -3.0, -5.0], [-6.0, 0, 0]]])
SCORED = LOGPROBS < 0
WEIGHT = SCORED * torch.tensor([1.0, 2.0, 0.5])


def test_elbo_is_the_mean_over_passes_of_weighted_sums() -> None:
    quantity = BOUNDS["elbo"](LOGPROBS, Passes(Hidden(SCORED), SCORED, WEIGHT))
    first = ((-1.0 - 4.0) + (-6.0 - 2.5)) / 2
    second = ((-8.0 - 4.0) + -6.0) / 2
    assert quantity.values.tolist() == [[[first], [second]]]
    assert quantity.counts.shape == (1, 2, 1) and bool(quantity.counts.all())


def test_a_rollout_that_is_scored_nowhere_does_not_count() -> None:
    scored = SCORED.clone()
    scored[:, 1] = False
    quantity = BOUNDS["elbo"](LOGPROBS * scored, Passes(Hidden(SCORED), scored, WEIGHT * scored))
    assert quantity.counts.flatten().tolist() == [True, False]
    assert quantity.values.flatten()[1] == 0


def test_elbo_over_every_mask_is_the_exact_evidence_bound() -> None:
    logprobs, passes = every_mask(4)
    quantity = BOUNDS["elbo"](logprobs, passes)
    assert float(quantity.values) == pytest.approx(evidence_bound(4), rel=1e-5)
    assert quantity.sizes is not None and quantity.sizes.tolist() == [[[4]]]


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
def test_eubo_over_every_mask_is_the_exact_bound(beta: float) -> None:
    value = BOUNDS["eubo"](*every_mask(N), upper(beta)).values
    assert float(value) == pytest.approx(exact(beta), rel=1e-5)


def test_eubo_by_hand_with_a_token_that_was_never_hidden() -> None:
    logprobs = torch.tensor([[[-1.0, -2.0, 0.0]], [[-3.0, 0.0, 0.0]]])
    scored = logprobs < 0
    passes = Passes(Hidden(scored), scored, scored * torch.tensor([2.0, 4.0, 1.0]))
    value = BOUNDS["eubo"](logprobs, passes, upper(2.0)).values
    first = math.log((2 * math.exp(-2.0) + 2 * math.exp(-6.0)) / 2) / 2
    second = math.log(4 * math.exp(-4.0) / 2) / 2
    assert float(value) == pytest.approx(first + second, rel=1e-5)


def test_the_gradient_of_eubo_is_finite_and_only_at_scored_tokens() -> None:
    logprobs = torch.tensor([[[-1.0, -200.0, 0.0]], [[-3.0, 0.0, 0.0]]], requires_grad=True)
    scored = logprobs.detach() < 0
    passes = Passes(Hidden(scored), scored, scored.float())
    BOUNDS["eubo"](logprobs, passes, upper(1.5)).values.sum().backward()
    assert logprobs.grad is not None
    assert torch.equal(logprobs.grad > 0, scored)
    torch.testing.assert_close(logprobs.grad.sum(0)[0], torch.tensor([1.0, 1.0, 0.0]))


def values(advantages: list[float], omega: float) -> list[float]:
    logprobs, passes = every_mask(N)
    copies = torch.zeros(len(advantages), dtype=torch.long)
    config, given = (
        AlgorithmConfig(bound="sandwich", eubo_beta=1.5, eubo_weight=omega),
        torch.tensor(advantages)[None, :, None],
    )
    quantity = BOUNDS["sandwich"](logprobs[:, copies], passes[copies], config, given)
    return quantity.values.flatten().tolist()


@pytest.mark.parametrize("omega", [0.0, 0.3, 1.0])
def test_the_sign_of_the_advantage_chooses_the_bound(omega: float) -> None:
    lower = float(BOUNDS["elbo"](*every_mask(N)).values)
    upper = float(
        BOUNDS["eubo"](*every_mask(N), AlgorithmConfig(bound="eubo", eubo_beta=1.5)).values
    )
    mixed = omega * upper + (1 - omega) * lower
    found = values([2.0, 0.0, -1.0], omega)
    assert found == pytest.approx([lower, lower, mixed], rel=1e-5)


OLD = torch.tensor([[[-1.0, -2.0], [-1.5, -0.5]], [[-0.7, -3.0], [-2.0, -1.0]]])
EVERYWHERE = torch.ones(2, 2, 2, dtype=torch.bool)
WEIGHTS = torch.tensor([[[2.0, 1.0]], [[1.0, 3.0]]]).expand(2, 2, 2)
PASSES = Passes(Hidden(EVERYWHERE), EVERYWHERE, WEIGHTS)


def test_additive_over_every_mask_is_the_exact_evidence_bound() -> None:
    quantity = BOUNDS["additive"](*every_mask(4))
    assert float(quantity.values.mean()) == pytest.approx(evidence_bound(4), rel=1e-5)


def loss_of(new: Tensor, advantages: list[float], bound: str) -> Tensor:
    """Of one ratio per rollout, over bound per token, without a clip."""
    level = "step" if bound == "additive" else "sequence"
    row = AlgorithmConfig(bound=bound, ratio_level=level, epsilon=1e9)
    entries = 4 if bound == "additive" else 2
    given = LossInputs(PASSES, Scores(new), torch.tensor(advantages), Scores(OLD))
    return policy_loss(given, row, BatchSize(2, 8, entries, 2))[0]


def test_the_additive_surrogate_by_hand() -> None:
    new = OLD + torch.tensor([[[0.1, 0.2], [-0.1, 0.3]], [[0.0, -0.2], [0.2, 0.1]]])
    # differences of the passes' bounds, per token: rollout 0 gains, rollout 1 loses
    d = [[(2 * 0.1 + 0.2) / 2, (0.0 - 3 * 0.2) / 2], [(-0.2 + 0.3) / 2, (0.2 + 3 * 0.1) / 2]]
    gain = 1.5 * (1 + sum(d[0]) / 2)
    lost = -0.5 * sum(math.exp(x) for x in d[1]) / 2
    assert loss_of(new, [1.5, -0.5], "additive").item() == pytest.approx(-(gain + lost) / 2)


def test_additive_is_a_lower_bound_of_the_sequence_objective() -> None:
    draws = torch.Generator().manual_seed(0)
    for _ in range(50):
        new = OLD + 2 * torch.randn(2, 2, 2, generator=draws)
        advantages = torch.randn(2, generator=draws).tolist()
        # losses: the bound of the objective from below is one of the loss from above
        assert loss_of(new, advantages, "additive") >= loss_of(new, advantages, "elbo") - 1e-5


def test_the_gradient_of_one_pass_does_not_depend_on_the_others() -> None:
    new = (OLD + 0.3).requires_grad_()
    [first] = torch.autograd.grad(loss_of(new, [1.5, -0.5], "additive"), new)
    other = torch.cat((OLD[:1] + 0.3, OLD[1:] - 5.0)).requires_grad_()
    [second] = torch.autograd.grad(loss_of(other, [1.5, -0.5], "additive"), other)
    assert torch.equal(first[0], second[0]) and not torch.equal(first[1], second[1])


def test_a_large_difference_does_not_overflow_where_the_bound_is_linear() -> None:
    new = (OLD + 1e4).requires_grad_()
    loss_of(new, [1.0, 1.0], "additive").backward()
    assert new.grad is not None and bool(new.grad.isfinite().all())
