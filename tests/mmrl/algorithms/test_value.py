"""The value loss: cases by hand, what it holds back, what it counts; and its settings."""

import pytest
import torch

from mmrl.algorithms.aggregation import BatchSize, grpo
from mmrl.algorithms.algorithm_config import ValueConfig
from mmrl.algorithms.value import compute_advantages, value_loss

ONE = BatchSize(1, 1, 1, 1)


def loss_of(value: float, old: float, target: float, epsilon: float = 0.2) -> tuple[float, float]:
    """Loss and gradient of a single token."""
    new = torch.tensor([[[value]]], requires_grad=True)
    rest = torch.tensor([[[old]]]), torch.tensor([[[target]]]), torch.ones(1, 1, 1)
    loss, metrics = value_loss(new, *rest, epsilon, ONE)
    loss.backward()
    assert new.grad is not None
    return float(metrics["loss/value_avg"]), float(new.grad)


@pytest.mark.parametrize(
    ("value", "old", "target", "loss", "gradient"),
    [
        (0.6, 0.5, 1.0, 0.08, -0.4),  # within reach: half the squared error
        (0.9, 0.5, 1.0, 0.045, 0.0),  # 0.7 held: (0.7 - 1)^2 / 2, so no gradient towards 1
        (1.4, 0.5, 0.6, 0.32, 0.8),  # beyond the return: the error itself is larger, towards it
        (0.1, 0.5, 1.0, 0.405, -0.9),  # on the wrong side: the error itself counts
    ],
)
def test_the_loss_of_a_token_by_hand(
    value: float, old: float, target: float, loss: float, gradient: float
) -> None:
    assert loss_of(value, old, target) == (pytest.approx(loss), pytest.approx(gradient))


def test_the_loss_is_a_mean_over_a_slices_tokens_and_then_over_slices() -> None:
    scored = torch.tensor([[[1, 1, 1, 0]], [[0, 0, 0, 1]]]).bool()
    size = BatchSize(1, 4, 4, 4, rows=2)
    values = torch.tensor([[[1.0, 2, 3, 9]], [[9, 9, 9, 4]]])
    zero = torch.zeros(2, 1, 4)
    inputs = (values, values, zero, grpo(scored, size))
    expected = ((1 + 4 + 9) / 3 + 16) / 2 / 2
    assert float(value_loss(*inputs, 0.2, size)[0]) == pytest.approx(expected)


def test_a_rollout_without_a_reward_has_no_return_and_no_advantage() -> None:
    scored = torch.eye(2).bool()[:, None].expand(2, 3, 2)
    values = torch.full((2, 3, 2), 0.5)
    outcomes = torch.tensor([[0.0, 1], [0, torch.nan], [0, 0]])
    returns, advantages = compute_advantages(values, outcomes, scored, ValueConfig())
    assert returns.sum(-1).tolist() == [[1, 0, 0]] * 2
    assert advantages.sum(-1).tolist() == [[0.5, 0, -0.5]] * 2


def test_gae_over_the_tokens_of_one_pass_is_that_of_ppo() -> None:
    # a prompt of one position, texts of three tokens and of two, the reward at the last position
    scored = torch.tensor([[[0, 1, 1, 1], [0, 1, 1, 0]]]).bool()
    values = torch.tensor([[[9.0, 0.5, 0.2, 0.4], [9.0, 0.3, 0.6, 9.0]]])
    rewards = torch.tensor([[0, 0, 0, 1.0], [0, 0, 0, -1.0]])
    config, steps = ValueConfig(gamma=0.9, lam=0.95), torch.arange(4).expand(2, 4)
    returns, advantages = compute_advantages(values, rewards, scored, config, steps)
    for row, end in ((0, 4), (1, 3)):
        later, following = 0.0, 0.0
        for t in reversed(range(1, end)):
            reward, value = float(rewards[row, 3] * (t == end - 1)), float(values[0, row, t])
            later = reward + 0.9 * following - value + 0.9 * 0.95 * later
            following = value
            assert float(advantages[0, row, t]) == pytest.approx(later)
            paid = float(rewards[row, 3]) * 0.9 ** (end - 1 - t)
            assert float(returns[0, row, t]) == pytest.approx(paid)
    assert not bool(advantages[~scored].any()) and not bool(returns[~scored].any())


@pytest.mark.parametrize("passes", [1, 3])
def test_tokens_written_singly_in_any_order_have_the_estimates_of_their_steps(passes: int) -> None:
    draw = torch.Generator().manual_seed(passes)
    steps = torch.stack([torch.randperm(12, generator=draw) for _ in range(5)])
    which = torch.randint(passes + 1, (5, 12), generator=draw)  # the last: scored in no pass
    which[4] = passes
    scored = which[None] == torch.arange(passes)[:, None, None]
    values = torch.randn(passes, 5, 12, generator=draw, dtype=torch.double)
    rewards = torch.randn(5, 12, generator=draw, dtype=torch.double)
    config = ValueConfig(gamma=0.9, lam=0.8)
    found = compute_advantages(values, rewards, scored, config, steps)
    by_step = scored.any(0) & (steps == torch.arange(12)[:, None, None])  # a pass for each step
    each = (values * scored).sum(0) * by_step
    known = compute_advantages(each, rewards, by_step, config)
    for one, other in zip(found, known, strict=True):
        torch.testing.assert_close(one, other.sum(0) * scored)


def test_the_outcome_is_carried_back_over_a_long_text() -> None:
    scored = torch.ones(1, 4, 3000, dtype=torch.bool)
    steps, rewards = torch.arange(3000).expand(4, -1), torch.zeros(4, 3000)
    rewards[:, -1] = 1.0
    found = compute_advantages(torch.zeros(1, 4, 3000), rewards, scored, ValueConfig(), steps)
    assert bool((found.advantages == 1).all())
