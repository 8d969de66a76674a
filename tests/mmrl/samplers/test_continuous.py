"""Rows that end give their places in the batch to others."""

from types import SimpleNamespace

import pytest
import torch
from torch import Generator

from mmrl.generation.masked.canvas import MaskedCanvas
from mmrl.generation.masked.samplers import continuous
from mmrl.models import load_model
from mmrl.samplers import SamplerConfig, sample
from tests.mmrl.block_canvases import block_canvas
from tests.models.networks import FIXTURES, bare_policy

LENGTHS = (6, 9, 9, 3, 12, 4, 6, 1, 8)


@pytest.fixture(scope="module")
def policy() -> SimpleNamespace:
    return bare_policy(load_model(FIXTURES / "sdar", dtype="float64"))


def ending(
    alignment: str = "right", lengths: tuple[int, ...] = LENGTHS, n: int = 12
) -> MaskedCanvas:
    """Rows of which some end early."""
    canvas = block_canvas(alignment, lengths, n)
    canvas.stop_ids = tuple(range(0, 580, 9))
    return canvas


def draws(canvas: MaskedCanvas) -> list[Generator]:
    return [Generator().manual_seed(n) for n in range(len(canvas))]


def config(name: str = "dynamic", steps: int = 12) -> SamplerConfig:
    own = {"threshold": 0.004} if name == "dynamic" else {}
    return SamplerConfig(name=name, steps=steps, cache="prefix", eos="stop", **own)  # type: ignore[arg-type]


@pytest.mark.parametrize("alignment", ["left", "right"])
@pytest.mark.parametrize("name", ["dynamic", "static", "left_to_right"])
@pytest.mark.parametrize("size", [1, 2, 5])
def test_rows_are_the_same_whatever_places_they_take(
    policy: SimpleNamespace, alignment: str, name: str, size: int
) -> None:
    canvas = ending(alignment)
    one = sample(policy, canvas, config(name), draws(canvas))
    several = sample(policy, canvas, config(name), draws(canvas), size)
    assert torch.equal(several.canvas.tokens, one.canvas.tokens)
    assert torch.equal(several.trace, one.trace)
    assert torch.equal(several.canvas.valid, one.canvas.valid)  # type: ignore[arg-type]
    torch.testing.assert_close(several.logprobs, one.logprobs)
    lengths = one.canvas.valid.sum(1).tolist()  # type: ignore[union-attr]
    assert len(set(lengths)) > 1


def test_a_cache_that_is_full_is_moved(
    policy: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    canvas = ending("left", LENGTHS * 3, 24)
    one = sample(policy, canvas, config(steps=24), draws(canvas))
    moves = []
    move = continuous.Batch._move
    monkeypatch.setattr(continuous.Batch, "_move", lambda self: moves.append(1) or move(self))
    monkeypatch.setattr(continuous, "SLACK", 1.0)
    several = sample(policy, canvas, config(steps=24), draws(canvas), 2)
    assert len(moves) > 1 and torch.equal(several.canvas.tokens, one.canvas.tokens)


def test_a_place_that_is_free_is_taken_at_once(policy: SimpleNamespace) -> None:
    canvas = ending(lengths=(8,) * 16, n=40)
    whole = sample(policy, canvas, config("static", 40), draws(canvas))
    blocks = (whole.canvas.valid.sum(1).double() / 4).ceil()  # type: ignore[union-attr]
    rows: list[int] = []

    def count(input_ids: torch.Tensor, **inputs: object) -> object:
        rows.append(len(input_ids))
        return policy.model(input_ids=input_ids, **inputs)

    counted = SimpleNamespace(**{**vars(policy), "model": count})
    rollout = sample(counted, canvas, config("static", 40), draws(canvas), 4)
    assert rollout.forwards == len(rows) and torch.equal(rollout.canvas.tokens, whole.canvas.tokens)
    # a block takes four passes of at most four rows, and new rows one more for their prompt
    assert sum(n == 4 for n in rows) >= 4 * int(blocks.sum() / 4 - blocks.max())
