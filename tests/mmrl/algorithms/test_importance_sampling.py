"""The correction for rollouts of another program, against TRL's formulas on given tensors."""

import math

import pytest
import torch
from torch import Tensor

from mmrl.algorithms.importance_sampling import Mismatch, importance_weights

OLD = torch.tensor([[[-1.0, -2.0, -0.5], [-0.2, -0.3, 0.0]]])
SAMPLED = torch.tensor([[-1.5, -3.5, -0.4], [-0.3, -1.3, -9.0]])
SCORED = torch.tensor([[[True, True, True], [True, True, False]]])
RATIOS = [[math.exp(0.5), math.exp(1.5), math.exp(-0.1)], [math.exp(0.1), math.exp(1.0), 1.0]]


def weights(mode: str, low: float | None = None, high: float = 3.0) -> Tensor:
    return importance_weights(OLD, SAMPLED, SCORED, mode, low, high)[0]


def test_tokens_are_weighed_by_their_own_ratios() -> None:
    capped = torch.tensor(RATIOS).clamp(max=3.0)
    torch.testing.assert_close(weights("token_truncate"), capped)
    masked = torch.tensor(RATIOS) * (torch.tensor(RATIOS) <= 3.0)
    torch.testing.assert_close(weights("token_mask"), masked)
    assert weights("token_mask")[0, 1] == 0


def test_sequences_are_weighed_by_the_product_of_the_ratios_of_scored_tokens() -> None:
    rows = torch.tensor([[math.exp(1.9)], [math.exp(1.1)]])
    torch.testing.assert_close(weights("sequence_truncate"), rows.clamp(max=3.0))
    torch.testing.assert_close(
        weights("sequence_mask", high=4.0), rows * torch.tensor([[0.0], [1.0]])
    )


def test_the_band_has_a_lower_end_where_one_is_given() -> None:
    assert weights("token_mask", low=1.0)[0].tolist() == pytest.approx([RATIOS[0][0], 0.0, 0.0])
    assert float(weights("token_truncate", low=1.0)[0, 2]) == 1.0


def test_what_the_sampler_does_not_know_counts_as_no_difference() -> None:
    unknown = torch.full_like(SAMPLED, torch.nan)
    found = importance_weights(OLD, unknown, SCORED, "sequence_mask", None, 3.0)
    assert found.tolist() == [[[1.0], [1.0]]]


def test_the_mismatch_of_parts_is_that_of_the_whole() -> None:
    parts = []
    for rows in (slice(0, 1), slice(1, 2)):
        own = OLD[:, rows], SAMPLED[rows], SCORED[:, rows]
        parts.append(Mismatch())
        parts[-1].add(*own, importance_weights(*own, "token_truncate", None, 3.0))
    found = Mismatch.merge(parts).metrics()
    gaps = torch.tensor([0.5, 1.5, -0.1, 0.1, 1.0])
    name = "sampling/sampling_logp_difference"
    assert found[f"{name}/mean"] == pytest.approx(float(gaps.abs().mean()))
    assert found[f"{name}/max"] == pytest.approx(1.5)
    assert found[f"{name}/k3"] == pytest.approx(float((gaps.exp() - 1 - gaps).mean()), rel=1e-5)
    kept = gaps.exp().clamp(max=3.0)
    ratio = "sampling/importance_sampling_ratio"
    own = [found[f"{ratio}/{which}"] for which in ("min", "mean", "max")]
    assert own == pytest.approx([float(kept.min()), float(kept.mean()), 3.0])
