"""Surrogates of a token, and how the entries of a batch are averaged."""

import pytest
import torch
from torch import Tensor

from mmrl.algorithms import AlgorithmConfig, LossInputs, policy_loss
from mmrl.algorithms.aggregation import AGGREGATIONS, BatchSize
from mmrl.algorithms.surrogates import SURROGATES, Comparison
from mmrl.generation.masked.hidden import Hidden
from mmrl.types import Passes, Scores

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


OLD, NEW = torch.tensor([0.5, 0.1, 0.9, 0.02]), torch.tensor([0.7, 0.3, 0.88, 0.05])
"""Probabilities of four tokens before and after the policy moved."""


def comparison(advantage: float, epsilon: float, counts: Tensor | None = None) -> Comparison:
    """One row, with numbers where it does not count that would spoil everything."""
    counts = torch.ones(len(NEW), dtype=torch.bool) if counts is None else counts
    new, old = torch.zeros(len(counts)), torch.zeros(len(counts))
    new[counts], old[counts] = NEW.log(), OLD.log()
    new, old, counts = (each[None, None] for each in (new, old, counts))
    new.requires_grad_()
    return Comparison(new - old, new, old, counts, torch.tensor(advantage), (epsilon, epsilon))


def kept(name: str, advantage: float, epsilon: float, counts: Tensor | None = None) -> list[bool]:
    c = comparison(advantage, epsilon, counts)
    terms = SURROGATES[name].terms(c)
    assert torch.equal(terms.values != 0, ~(terms.below | terms.above) & (c.counts | True))
    return (terms.values != 0)[c.counts].tolist()


def test_dppo_keeps_tokens_whose_probability_is_near_or_moves_back() -> None:
    assert kept("dppo", 1.0, 0.15) == [False, False, True, True]
    assert kept("dppo", -1.0, 0.01) == [True, True, False, True]
    c = comparison(1.0, 0.15)
    values = SURROGATES["dppo"].terms(c).values.flatten().tolist()
    assert values == pytest.approx([0, 0, 0.88 / 0.9, 2.5])


@pytest.mark.parametrize("counts", [None, [1, 0, 1, 1, 0, 1, 0]])
def test_cppo_keeps_what_the_budget_of_the_tokens_before_leaves(counts: list | None) -> None:
    # the first token is on the edge of its budget, 0.2
    places = None if counts is None else torch.tensor(counts).bool()
    assert kept("cppo", 1.0, 0.2 + 1e-6, places) == [True, False, True, False]
    assert kept("cppo", -1.0, 0.2 + 1e-6, places) == [True, True, False, True]
    assert kept("cppo", 1.0, 0.2 - 1e-6, places)[0] is False


def test_drpo_pays_for_the_square_of_the_change() -> None:
    c = comparison(1.0, 12.5)
    values = SURROGATES["drpo"].terms(c).values
    assert values.flatten().tolist() == pytest.approx([1.3968, 2.984, 0.97776, 2.4982])
    # the weight of the policy gradient: 1 - sign(A (r - 1)) |p - q| / eps
    gradient = torch.autograd.grad(values.sum(), c.new)[0].flatten()
    ratio = NEW / OLD
    expected = ratio * (1 - (ratio - 1).sign() * (NEW - OLD).abs() / 12.5)
    torch.testing.assert_close(gradient, expected)


def test_cispo_gives_every_token_a_gradient_with_a_clipped_weight() -> None:
    c = comparison(-2.0, 0.5)
    terms = SURROGATES["cispo"].terms(c)
    gradient = torch.autograd.grad(terms.values.sum(), c.new)[0].flatten()
    torch.testing.assert_close(gradient, -2 * (NEW / OLD).clamp(max=1.5))
    assert not bool(terms.above.any()), "only positive advantages are held back"


def test_a_token_far_outside_every_range_has_a_finite_loss() -> None:
    scored = torch.ones(1, 1, 2, dtype=torch.bool)
    new = torch.tensor([[[-1.0, -0.1]]], requires_grad=True)
    old = torch.tensor([[[-200.0, -120.0]]])
    passes = Passes(Hidden(scored), scored, scored.float())
    given = LossInputs(passes, Scores(new), torch.tensor([-1.0]), Scores(old))
    for name in ("dppo", "cppo", "drpo"):
        value, _ = policy_loss(given, AlgorithmConfig(surrogate=name), BatchSize(1, 2, 2, 2))
        assert bool(value.isfinite()), name
        assert bool(torch.autograd.grad(value, new)[0].isfinite().all()), name
