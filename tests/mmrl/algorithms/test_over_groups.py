"""Losses over groups of ratios: weights that are clipped, and divided by their sum in the group."""

from typing import Any

import pytest
import torch
from torch import Tensor

from mmrl.algorithms import AlgorithmConfig, LossInputs, load_algorithm, policy_loss
from mmrl.algorithms.aggregation import BatchSize
from mmrl.algorithms.loss import compare
from mmrl.config import ConfigError
from mmrl.generation.masked.hidden import Hidden
from mmrl.types import Passes, Scores

METHOD = load_algorithm({"name": "stable_drl", "epsilon": 0.5, "epsilon_high": 1.0})


def gradient(
    ratios: Tensor,
    advantages: Tensor,
    size: int,
    method: AlgorithmConfig = METHOD,
    left_out: tuple[int, ...] = (),
) -> tuple[Tensor, dict[str, Any]]:
    """The gradient of the loss by the log-prob of rollouts of one token with these ratios [B], in
    groups of a size; and the metrics."""
    rows = len(ratios)
    scored = torch.ones(1, rows, 1, dtype=torch.bool)
    scored[:, list(left_out)] = False
    passes = Passes(Hidden(scored), scored, scored.float())
    old = torch.full((1, rows, 1), -1.5)
    new = (old + ratios.log()[None, :, None]).requires_grad_()
    inputs = LossInputs(passes, Scores(new), advantages, Scores(old))
    counted = rows - len(left_out)
    if method.group is not None:
        found = method.group.measure(compare(inputs, method)[0]).detach()
        inputs.slopes = method.group.slopes(found, advantages, size, method)
    batch = BatchSize(counted, counted, counted, 1, counted, counted)
    loss, metrics = policy_loss(inputs, method, batch)
    loss.backward()
    assert new.grad is not None
    return new.grad.flatten(), metrics


def test_weights_are_clipped_and_divided_by_their_sum() -> None:
    ratios = torch.tensor([3.0, 0.5, 1.2, 0.1])  # held at 2, 0.5, 1.2 and 0.5
    found, metrics = gradient(ratios, torch.tensor([1.0, -1.0, 2.0, -2.0]), 2)
    # half of each group's mean, the weights of a group adding up to 1
    expected = [-2 / 2.5 / 2, 0.5 / 2.5 / 2, -2 * 1.2 / 1.7 / 2, 2 * 0.5 / 1.7 / 2]
    assert found.tolist() == pytest.approx(expected)
    assert float(metrics["ratio"]) == pytest.approx(1.2)
    assert float(metrics["clip_ratio/low_mean"]) == float(metrics["clip_ratio/high_mean"]) == 0.25


def test_a_rollout_that_is_left_out_has_no_part_in_the_weights_of_its_group() -> None:
    ratios, advantages = torch.tensor([1.5, 0.8, 1.1, 7.0]), torch.tensor([1.0, -1.0, 0.5, -0.5])
    three, _ = gradient(ratios, advantages, 4, left_out=(3,))
    alone, _ = gradient(ratios[:3], advantages[:3], 3)
    torch.testing.assert_close(three[:3], alone)
    assert float(three[3]) == 0


@pytest.mark.parametrize("spike", [1e-6, 50.0, 1e30])
def test_no_ratio_leads_out_of_the_convex_hull_of_the_rollouts(spike: float) -> None:
    ratios = torch.tensor([1.0, 1.1, 0.9, spike])
    advantages = torch.tensor([0.6, 0.3, 0.1, -1.0])
    found, _ = gradient(ratios, advantages, 4)
    assert float((found / -advantages).sum()) == pytest.approx(1, abs=1e-6)
    assert bool((found / -advantages > 0).all())
    plain = load_algorithm({"name": "espo", "beta": 0.0})
    free, _ = gradient(ratios.clamp(max=1e30), advantages, 4, plain)
    assert spike < 1 or float(free.abs().max()) > 10, "which PPO's minimum leaves unclipped"


def test_at_the_start_it_is_the_policy_gradient() -> None:
    advantages = torch.tensor([1.0, -1.0, 0.5, -0.5])
    found, metrics = gradient(torch.ones(4), advantages, 2)
    torch.testing.assert_close(found, -advantages / 4)
    assert float(metrics["ratio"]) == 1 and float(metrics["approx_kl"]) == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": "gspo", "aggregation": "self_normalized"}, "surrogate is clipped.*weighted"),
        ({"name": "stable_drl", "ratio_level": "token"}, "ratio_level is token.*sequence"),
        ({"name": "lfpo", "aggregation": "self_normalized"}, "aggregation is self_normalized"),
    ],
)
def test_what_it_cannot_go_with_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_algorithm(options)
