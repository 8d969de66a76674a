"""Examples of a batch: each counts and sees what it would alone."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from mmrl.objectives.scored_rows import Rows
from mmrl.objectives.text import Completions
from mmrl.runtime import logits_budget
from tests.device_counts import LargestLogits
from tests.mmrl.objectives.completions import ROWS, SIZES, completions, gradients, visits

CORRUPTIONS: list[dict[str, Any]] = [{"name": "random"}, {"name": "semi_ar", "block_size": 4}]
CORRUPTIONS += [{"name": "block", "block_size": 4}, {"name": "left_to_right"}]


@pytest.mark.parametrize("corruption", CORRUPTIONS, ids=lambda c: c["name"])
def test_an_example_counts_the_same_alone_and_on_any_rank(data: Path, corruption: dict) -> None:
    whole = completions(data, corruption=corruption)
    loss, gradient = gradients(whole, [whole.batch(0, 0, 1)])
    alone = completions(data, batch_size=1, corruption=corruption)
    ranks = completions(data, batch_size=3, corruption=corruption)
    shared = [ranks.batch(0, rank, 2) for rank in range(2)]
    for objective, batches in ((alone, visits(alone, len(ROWS))), (ranks, shared)):
        other, slope = gradients(objective, batches)
        assert other == pytest.approx(loss, rel=1e-5)
        torch.testing.assert_close(slope, gradient, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("frozen", [False, True])
def test_logits_in_parts_give_the_same_loss_and_gradient_and_stay_within_the_budget(
    data: Path, frozen: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    objective = completions(data, corruption={"name": "random"})
    objective.module.double()
    objective.policy.network.head.weight.requires_grad_(not frozen)
    batch = objective.batch(0, 0, 1)
    columns = objective.text.vocab[1] - objective.text.vocab[0]
    found, sizes = [], []
    for rows in (2**20, 3):
        monkeypatch.setattr(logits_budget, "LOGITS_BUDGET", rows * columns * 8)
        with LargestLogits(columns, SIZES["d_model"]) as largest:
            found.append(gradients(objective, [batch]))
        sizes.append(largest.size)
    torch.testing.assert_close(found[1], found[0], rtol=1e-10, atol=1e-12)
    assert sizes[1] <= 3 * columns * 8 < sizes[0] / 4


@torch.no_grad()
def test_a_copied_block_knows_nothing_of_itself_or_of_what_follows(data: Path) -> None:
    objective = completions(data, batch_size=1, corruption={"name": "block", "block_size": 4})
    batch = next(b for b in visits(objective, 20) if int(b.block.max()) > 1)
    logits = [predictions(objective, batch)]
    clean = (batch.block >= 1) & ~batch.copy
    batch.ids = torch.where(clean, batch.ids + 1, batch.ids)
    logits.append(predictions(objective, batch))
    same = (logits[0] == logits[1]).all(-1)
    assert same[batch.copy & (batch.block <= 1)].all()
    assert not same[batch.copy & (batch.block > 1)].any()


def predictions(objective: Completions, batch: Rows) -> Tensor:
    mask, places = batch.attention_mask, batch.position_ids
    return objective.module(input_ids=batch.ids, attention_mask=mask, position_ids=places).logits
