"""Credit for slices of a trace: what the advantages sum up to, and what is credited to whom."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mmrl.algorithms.advantages import group_advantages
from mmrl.algorithms.completion_value import credit_slices, slice_trace

promise = settings(derandomize=True, deadline=None, max_examples=40)
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
