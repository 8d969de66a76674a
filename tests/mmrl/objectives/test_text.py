"""The loss of completions: what is learned, with which weight."""

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from tests.mmrl.objectives.completions import (
    ROWS,
    completions,
    example_of,
    gradients,
    visits,
    write_rows,
)


@torch.no_grad()
def test_the_loss_is_lladas_on_completions_filled_to_the_longest_row(data: Path) -> None:
    objective = completions(data, fill="batch")
    batch = objective.batch(0, 0, 1)
    assert not batch.padded and batch.attention_mask is None
    expected = 0.0
    for row in range(len(ROWS)):
        given = len(example_of(objective, batch, row).prompt)
        answer = batch.ids.shape[1] - given
        hidden = batch.ids[row] == objective.policy.mask_id
        assert not hidden[:given].any() and torch.equal(hidden, batch.weight[row] > 0)
        rates = 1 / (batch.weight[row, hidden] * answer * len(ROWS))
        assert torch.allclose(rates, rates[:1]) and (rates <= 1).all()  # one rate per row
        logits = objective.module(input_ids=batch.ids[row : row + 1]).logits[0]
        entropy = F.cross_entropy(logits, batch.targets[row], reduction="none")
        expected += float((entropy[hidden] / rates).sum()) / answer / len(ROWS)
    assert float(objective.loss(batch)[0]) == pytest.approx(expected, rel=1e-5)


def test_every_completion_token_is_learned_with_its_ends_and_nothing_of_the_prompt(
    data: Path,
) -> None:
    objective = completions(data)
    eot, eos = objective.text.ids["eot"], objective.text.ids["eos"]
    learned: dict[tuple[int, ...], set[int]] = {}
    for batch in visits(objective, 40):
        for row in range(len(batch)):
            targets = tuple(batch.targets[row, batch.piece[row] >= 0].tolist())
            scored = batch.weight[row].nonzero().flatten().tolist()
            learned.setdefault(targets, set()).update(scored)
            assert targets[-2:] == (eot, eos)
    assert len(learned) == len(ROWS)
    for example in objective.source.rows.items:
        ids = (*example.prompt.tolist(), *example.completion.tolist())
        assert learned[ids] == set(range(len(example.prompt), len(example)))


def test_each_visit_of_an_example_draws_new_masks(data: Path) -> None:
    objective = completions(data, batch_size=1)
    first, again = (
        [batch for batch in (objective.batch(step, 0, 1) for step in epoch)]
        for epoch in (range(6), range(6, 12))
    )
    pairs = [(a, b) for a in first for b in again if torch.equal(a.targets, b.targets)]
    assert len(pairs) == len(ROWS)
    assert any(not torch.equal(a.ids, b.ids) for a, b in pairs)


@pytest.mark.parametrize(
    ("changes", "length", "learned"),
    [
        ({}, 14, 4),
        ({"fill": "completion", "completion_length": 9}, 19, 9),
        ({"fill": "completion", "completion_length": 9, "trained_padding": 2}, 19, 6),
        ({"fill": "completion", "completion_length": 9, "trained_padding": 0}, 19, 4),
        ({"fill": "row", "max_length": 40}, 40, 30),
        ({"fill": "row", "max_length": 40, "trained_padding": 1}, 40, 5),
        ({"ends": ["eot"]}, 13, 3),
        ({"ends": []}, 12, 2),
    ],
)
def test_ends_and_padding_are_learned_as_the_options_say(
    tmp_path: Path, changes: dict[str, Any], length: int, learned: int
) -> None:
    row = {"prompt": [60] * 10, "completion": "red ring"}
    objective = completions(write_rows(tmp_path / "rows.jsonl", [row]), batch_size=1, **changes)
    seen = set()
    for batch in visits(objective, 60):
        assert batch.ids.shape == (1, length)
        seen.update(batch.weight[0].nonzero().flatten().tolist())
        assert (batch.ids[0, 10 + learned :] == objective.policy.mask_id).all()
    assert seen == set(range(10, 10 + learned))


def test_a_batch_in_which_nothing_is_hidden_has_a_loss_of_zero_with_gradients(
    tmp_path: Path,
) -> None:
    path = write_rows(tmp_path / "rows.jsonl", [{"prompt": "a", "completion": [60]}])
    objective = completions(path, batch_size=1)
    empty = next(b for b in visits(objective, 40) if not (b.weight > 0).any())
    loss, gradient = gradients(objective, [empty])
    assert loss == 0.0 and gradient.abs().max() == 0.0
    assert all(p.grad is not None for p in objective.module.parameters())


def test_the_global_generator_is_left_alone(data: Path) -> None:
    before = torch.get_rng_state()
    objective = completions(data)
    objective.loss(objective.batch(0, 0, 1))
    assert torch.equal(before, torch.get_rng_state())


def test_held_out_examples_are_scored_with_the_same_masks_each_time(data: Path) -> None:
    objective = completions(data, eval_data=str(data), batch_size=4)
    with torch.no_grad():
        first, again = (objective.evaluate(Path(), step) for step in (1, 2))
    assert first == again and first["eval/loss"] > 0
