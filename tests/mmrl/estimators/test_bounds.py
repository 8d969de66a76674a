"""Bounds against sums by hand."""

import torch

from mmrl.estimators import BOUNDS
from mmrl.types import Passes

LOGPROBS = torch.tensor([[[-1.0, -2.0, 0.0], [0.0, -4.0, -8.0]], [[0.0, -3.0, -5.0], [-6.0, 0, 0]]])
SCORED = LOGPROBS < 0
WEIGHT = SCORED * torch.tensor([1.0, 2.0, 0.5])


def test_token_keeps_every_scored_token_of_every_pass() -> None:
    quantity = BOUNDS["token"](LOGPROBS, Passes(SCORED, SCORED, WEIGHT))
    assert torch.equal(quantity.values, LOGPROBS)
    assert torch.equal(quantity.counts, SCORED)


def test_elbo_is_the_mean_over_passes_of_weighted_sums() -> None:
    quantity = BOUNDS["elbo"](LOGPROBS, Passes(SCORED, SCORED, WEIGHT))
    first = ((-1.0 - 4.0) + (-6.0 - 2.5)) / 2
    second = ((-8.0 - 4.0) + -6.0) / 2
    assert quantity.values.tolist() == [[[first], [second]]]
    assert quantity.counts.shape == (1, 2, 1) and bool(quantity.counts.all())


def test_a_rollout_that_is_scored_nowhere_does_not_count() -> None:
    scored = SCORED.clone()
    scored[:, 1] = False
    quantity = BOUNDS["elbo"](LOGPROBS * scored, Passes(SCORED, scored, WEIGHT * scored))
    assert quantity.counts.flatten().tolist() == [True, False]
    assert quantity.values.flatten()[1] == 0
