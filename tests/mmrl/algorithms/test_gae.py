"""Returns and advantages: the worked numbers, the limits of lambda, and what always holds."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from mmrl.algorithms.advantages import group_advantages
from mmrl.algorithms.algorithm_config import ValueConfig
from mmrl.algorithms.completion_value import credit_slices, slice_trace
from mmrl.algorithms.value import Estimates, compute_advantages
from mmrl.rollouts.credit import place_at_end

promise = settings(derandomize=True, deadline=None, max_examples=40)
SCORED = torch.tensor([[1, 1, 0, 0, 0, 0], [0, 0, 1, 0, 0, 0], [0, 0, 0, 1, 1, 1]]).bool()[:, None]
VALUES = torch.tensor([[0.2, 0.4, 0, 0, 0, 0], [0, 0, 0.1, 0, 0, 0], [0, 0, 0, 0.5, 0.3, 0.1]])
"""Three steps of two, one and three tokens."""


def estimate(
    earned: Tensor, values: Tensor, scored: Tensor, gamma: float = 1.0, lam: float = 1.0
) -> Estimates:
    return compute_advantages(values, earned, scored, ValueConfig(gamma=gamma, lam=lam))


def paid(earned: Tensor, scored: Tensor) -> Tensor:
    """[K, B, L]: what each token is paid: its return where nothing later counts."""
    return estimate(earned, earned.new_zeros(scored.shape), scored, gamma=0.0).returns


def step_means(tokens: Tensor, scored: Tensor) -> Tensor:
    """[K, B]: the mean over the scored tokens of each step, 0 for a step without any."""
    return (tokens * scored).sum(-1) / scored.sum(-1).clamp(min=1)


def rollouts(steps: list[list[int]], length: int, seed: int) -> tuple[Tensor, ...]:
    """Random rewards [B, L], values [K, B, L] and the tokens of each step, given per row and
    position."""
    draw = torch.Generator().manual_seed(seed)
    at = torch.tensor(steps)
    scored = at[None] == torch.arange(length)[:, None, None]
    shapes = scored.shape[1:], scored.shape
    return (*(torch.randn(s, generator=draw, dtype=torch.double) for s in shapes), scored)


@st.composite
def random_rollouts(draw: st.DrawFn) -> tuple[Tensor, ...]:
    """Up to three rows of up to six tokens, some (step -1) never scored, steps in any number."""
    length = draw(st.integers(1, 6))
    row = st.lists(st.integers(-1, length - 1), min_size=length, max_size=length)
    steps = draw(st.lists(row, min_size=1, max_size=3))
    return rollouts(steps, length, draw(st.integers(0, 99)))


def test_the_worked_numbers() -> None:
    earned = place_at_end(torch.ones(1), 6)
    returns, advantages = estimate(earned, VALUES[:, None], SCORED, 0.9, 0.8)
    expected = [[0.81, 0.81, 0, 0, 0, 0], [0, 0, 0.9, 0, 0, 0], [0, 0, 0, 1, 1, 1]]
    torch.testing.assert_close(returns[:, 0], torch.tensor(expected))
    expected = [[0.37528, 0.17528, 0, 0, 0, 0], [0, 0, 0.674, 0, 0, 0], [0, 0, 0, 0.5, 0.7, 0.9]]
    torch.testing.assert_close(advantages[:, 0], torch.tensor(expected))
    steps = [step_means(t, SCORED)[:, 0].tolist() for t in (VALUES[:, None], returns, advantages)]
    assert steps[0] == pytest.approx([0.3, 0.1, 0.3])
    assert steps[1] == pytest.approx([0.81, 0.9, 1.0])
    assert steps[2] == pytest.approx([0.27528, 0.674, 0.7])


def test_a_reward_is_paid_when_all_it_was_judged_for_is_written_and_in_full() -> None:
    # written in the order 3 1 | 0 5 | 2 4: what ends at position 1 is whole after the second step
    scored = torch.zeros(3, 1, 6, dtype=torch.bool)
    for step, places in enumerate([[3, 1], [0, 5], [2, 4]]):
        scored[step, 0, places] = True
    earned = torch.tensor([[0, 7.0, 0, 0, 0, 100.0]])
    assert step_means(paid(earned, scored), scored)[:, 0].tolist() == [0, 7, 100]
    returns, _ = estimate(earned, torch.zeros(3, 1, 6), scored)
    assert returns.sum(0)[0].tolist() == [107, 107, 100, 107, 100, 107]
    # a step that also writes a token of the next chunk pays no less for the first
    shared = torch.tensor([[[1, 1, 0, 0]], [[0, 0, 1, 1]]]).bool()
    whole = paid(torch.tensor([[3.0, 0, 0, 0]]), shared)
    assert step_means(whole, shared)[:, 0].tolist() == [3, 0]


def test_a_reward_up_to_where_nothing_is_scored_is_paid_to_nobody() -> None:
    scored = SCORED.clone()
    scored[:, :, :2] = False
    earned = torch.tensor([[0, 5.0, 0, 0, 0, 1.0]])
    assert paid(earned, scored)[:, 0].sum(-1).tolist() == [0, 0, 3]
    assert not bool(paid(earned, torch.zeros_like(scored)).any())


@promise
@given(random_rollouts(), st.integers(0, 99))
def test_a_return_is_the_sum_of_what_is_paid_from_its_step_on(
    drawn: tuple[Tensor, ...], seed: int
) -> None:
    _, _, scored = drawn
    draw = torch.Generator().manual_seed(seed)
    earned = torch.randn(scored.shape[1:], generator=draw, dtype=torch.double)
    returns, _ = estimate(earned, earned.new_zeros(scored.shape), scored)
    for row in range(len(earned)):
        at = [
            int(scored[:, row, place].int().argmax()) if scored[:, row, place].any() else -1
            for place in range(earned.shape[1])
        ]
        for place, step in enumerate(at):
            later = [n for n in range(len(at)) if max(at[: n + 1]) >= max(step, 0)]
            expected = float(sum(earned[row, n] for n in later)) if step >= 0 else 0.0
            assert float(returns[:, row, place].sum()) == pytest.approx(expected)


@promise
@given(random_rollouts(), st.floats(-2, 2))
def test_undiscounted_monte_carlo_is_the_outcome_less_the_tokens_own_value(
    drawn: tuple[Tensor, ...], outcome: float
) -> None:
    _, values, scored = drawn
    outcomes = torch.full((values.shape[1],), outcome, dtype=torch.double)
    result = estimate(place_at_end(outcomes, scored.shape[-1]), values, scored)
    torch.testing.assert_close(result.returns, outcome * scored.double())
    torch.testing.assert_close(result.advantages, (outcome - values) * scored)


@promise
@given(random_rollouts(), st.floats(0, 1), st.floats(0, 1))
def test_the_mean_over_a_steps_tokens_follows_the_recursion_of_steps(
    drawn: tuple[Tensor, ...], gamma: float, lam: float
) -> None:
    rewards, values, scored = drawn
    result = estimate(rewards, values, scored, gamma, lam)
    means = [step_means(t, scored) for t in (paid(rewards, scored), values, *result)]
    for row in range(values.shape[1]):
        later_return = later_value = later_advantage = 0.0
        for k in reversed(range(len(scored))):
            if not bool(scored[k, row].any()):
                continue
            reward, value, got_return, got_advantage = (float(mean[k, row]) for mean in means)
            later_return = reward + gamma * later_return
            surprise = reward - value + gamma * later_value
            later_advantage = surprise + gamma * lam * later_advantage
            later_value = value
            assert got_return == pytest.approx(later_return)
            assert got_advantage == pytest.approx(later_advantage)


NAN = float("nan")


def draw(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.double)


@promise
@given(st.integers(2, 5), st.integers(0, 99), st.sampled_from(["batch", "none"]))
def test_without_lambda_the_slices_share_out_the_advantage_of_the_outcome(
    slices: int, seed: int, scale: str
) -> None:
    outcomes, scores = draw(8, seed=seed), draw(slices - 1, 8, seed=seed + 100)
    credit = credit_slices(outcomes, scores, 4, scale, 0.0)
    assert credit.advantages.shape == (8, slices)
    torch.testing.assert_close(credit.advantages.sum(1), group_advantages(outcomes, 4, scale))


def test_a_slice_that_changes_no_score_earns_nothing() -> None:
    outcomes = torch.tensor([1.0, 0.0, 0.0, 1.0, 1.0, 0.0, 0.0, 0.0])
    decided = torch.stack([torch.zeros(8), outcomes, outcomes])
    credit = credit_slices(outcomes, decided, 4, "batch", 0.0)
    whole = group_advantages(outcomes, 4, "batch")
    expected = torch.stack([torch.zeros(8), whole, torch.zeros(8), torch.zeros(8)], 1)
    torch.testing.assert_close(credit.advantages, expected, atol=1e-6, rtol=0)
    torch.testing.assert_close(credit.explained, torch.tensor([0.0, 1.0, 1.0]).double())


def test_with_lambda_one_the_value_is_a_baseline() -> None:
    outcomes, scores = draw(12), draw(2, 12, seed=1)
    scores = scores + outcomes  # they say something
    credit = credit_slices(outcomes, scores, 4, "none", 1.0)
    centred = outcomes - outcomes.view(-1, 4).mean(1).repeat_interleave(4)
    torch.testing.assert_close(credit.advantages[:, 0].double(), centred, atol=1e-6, rtol=0)
    for k in (1, 2):
        left = credit.advantages[:, k].double()
        own = scores[k - 1] - scores[k - 1].view(-1, 4).mean(1).repeat_interleave(4)
        assert float(left.square().sum()) < float(centred.square().sum())
        assert float((left * own).sum()) == pytest.approx(0, abs=1e-4), "least squares"


def test_a_rollout_without_a_reward_earns_nothing() -> None:
    outcomes, scores = draw(8), draw(3, 8, seed=1)
    outcomes[2] = NAN
    credit = credit_slices(outcomes, scores, 4, "batch", 0.5)
    assert not bool(credit.advantages[2].any()) and not bool(credit.advantages.isnan().any())
    unknown = scores.clone()
    unknown[1, 5] = NAN
    assert not bool(credit_slices(outcomes, unknown, 4, "batch", 0.5).advantages.isnan().any())


def test_slices_are_whole_steps_of_about_equal_size() -> None:
    written_at = torch.tensor([[-1, 0, 0, 1, 2, 2, 2, 3, 4], [-1, -1, 0, 0, 0, 0, 5, 6, 7]])
    counted = written_at >= 0
    slices = slice_trace(written_at, counted, 4)
    assert slices.tolist() == [[-1, 0, 0, 1, 2, 2, 2, 3, 3], [-1, -1, 1, 1, 1, 1, 2, 3, 3]]
    counted[0, 5:] = False  # after the end of a text
    assert slice_trace(written_at, counted, 4)[0].tolist() == [-1, 1, 1, 2, 3, 3, 3, 3, 3]
