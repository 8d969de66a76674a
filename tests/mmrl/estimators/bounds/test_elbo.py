"""elbo: sums by hand, and the evidence bound when all masks are passes."""

import pytest
import torch

from mmrl.algorithms.bounds import BOUNDS
from mmrl.generation.masked.hidden import Hidden
from mmrl.types import Passes
from tests.mmrl.estimators.exact import every_mask, evidence_bound

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


def test_with_every_mask_as_a_pass_it_is_the_exact_evidence_bound() -> None:
    logprobs, passes = every_mask(4)
    quantity = BOUNDS["elbo"](logprobs, passes)
    assert float(quantity.values) == pytest.approx(evidence_bound(4), rel=1e-5)
    assert quantity.sizes is not None and quantity.sizes.tolist() == [[[4]]]
