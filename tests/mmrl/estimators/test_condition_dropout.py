"""Rollouts that are scored without their prompt."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Generator

from mmrl.estimators.condition_dropout import drop_conditions
from mmrl.generation.tokens.features import Features
from mmrl.randomness import generator
from tests.mmrl.canvases import small_canvas
from tests.mmrl.runs import World
from tests.mmrl.training.test_methods import likelihood, prepared

ROWS = 400


def draws(rows: int = ROWS) -> list[Generator]:
    return [generator("conditions", row) for row in range(rows)]


@pytest.mark.parametrize("padding", [False, True])
def test_rows_have_their_own_prompt_or_none_and_the_same_response(padding: bool) -> None:
    canvas = small_canvas(ROWS, padding=padding)
    found, other = drop_conditions(canvas, 0.25, draws()), canvas.unconditional()
    dropped = (found.tokens == other.tokens).all(-1)
    assert dropped.float().mean() == pytest.approx(0.25, abs=0.06)
    kept = ~dropped
    assert torch.equal(found.tokens[kept], canvas.tokens[kept])
    assert torch.equal(found.tokens[found.response], canvas.tokens[canvas.response])
    assert (found.attend is None) == (not padding)
    if found.attend is not None and canvas.attend is not None and other.attend is not None:
        assert torch.equal(found.attend[kept], canvas.attend[kept])
        assert torch.equal(found.attend[dropped], other.attend[dropped])


def test_what_one_side_alone_pads_stays_hidden_on_that_side() -> None:
    canvas = replace(small_canvas(ROWS, padding=True), uncond_attend=None)
    found = drop_conditions(canvas, 0.5, draws())
    dropped = (found.tokens == canvas.unconditional().tokens).all(-1)
    assert found.attend is not None and canvas.attend is not None
    assert bool(found.attend[dropped].all())
    assert torch.equal(found.attend[~dropped], canvas.attend[~dropped])


def test_prompts_that_cannot_be_left_out_are_refused() -> None:
    canvas = small_canvas(2)
    seeing = Features(torch.full_like(canvas.tokens, -1), (), None)
    for change in ({"uncond_tokens": None}, {"features": seeing}):
        with pytest.raises(ValueError, match="cond_dropout_prob is 0.5"):
            drop_conditions(replace(canvas, **change), 0.5, draws(2))


def test_an_update_without_prompts_starts_at_ratio_one_and_moves_the_unconditional_side(
    world: World, tmp_path: Path
) -> None:
    options = {"name": "mask_grpo", "num_iterations": 2, "cond_dropout_prob": 1.0, "beta": 0.1}
    slow = {"learning_rate": 1e-30, "warmup_steps": 1000}
    trainer, task, batch = prepared(world, tmp_path, options, **slow)
    item = trainer._prepare(task, batch, 0)
    alone = replace(batch, rollout=replace(batch.rollout, canvas=item.batch.rollout.canvas))
    assert torch.equal(
        item.batch.rollout.canvas.tokens, batch.rollout.canvas.unconditional().tokens
    )
    values = trainer.update({"shapes": (task, batch)})
    assert values["ratio"] == 1.0 and values["kl"] == 0.0 and values["grad_norm"] > 0
    trainer.optimizers[0].param_groups[0]["lr"] = 1e-3
    before = likelihood(trainer, task, alone)
    trainer.update({"shapes": (task, batch)})
    gain = likelihood(trainer, task, alone) - before
    assert float((gain * batch.advantages).sum()) > 0
