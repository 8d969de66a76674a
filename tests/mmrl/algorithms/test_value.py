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
    scored = torch.ones(2, 3, 1, dtype=torch.bool)
    values = torch.full((2, 3, 1), 0.5)
    outcomes = torch.tensor([[1.0], [torch.nan], [0.0]])
    returns, advantages = compute_advantages(values, outcomes, scored, ValueConfig())
    assert returns[:, :, 0].tolist() == [[1, 0, 0]] * 2
    assert advantages[:, :, 0].tolist() == [[0.5, 0, -0.5]] * 2
