"""Networks whose attention is causal between blocks: their cache is exact."""

from types import SimpleNamespace

import pytest
import torch
from torch import Generator, Tensor

from mmrl.config import ConfigError
from mmrl.generation.masked.canvas import MaskedCanvas
from mmrl.generation.masked.samplers import continuous
from mmrl.models import load_model
from mmrl.samplers import SamplerConfig, sample
from tests.mmrl.block_canvases import block_canvas
from tests.models.networks import FIXTURES, bare_policy


@pytest.fixture(scope="module")
def policy() -> SimpleNamespace:
    return bare_policy(load_model(FIXTURES / "sdar", dtype="float64"))


def draws(canvas: MaskedCanvas) -> list[Generator]:
    return [Generator().manual_seed(n) for n in range(len(canvas))]


def config(cache: str, name: str = "dynamic", **options: object) -> SamplerConfig:
    settings = {"threshold": 0.004} if name == "dynamic" else {}
    return SamplerConfig(name=name, steps=12, cache=cache, **{**settings, **options})  # type: ignore[arg-type]


@pytest.mark.parametrize("alignment", ["left", "right"])
@pytest.mark.parametrize("cfg_scale", [0.0, 1.5])
def test_tokens_with_the_cache_are_those_without(
    policy: SimpleNamespace, alignment: str, cfg_scale: float
) -> None:
    canvas = block_canvas(alignment)
    for name in ("dynamic", "static", "left_to_right"):
        slow, fast = (
            sample(policy, canvas, config(cache, name, cfg_scale=cfg_scale), draws(canvas))
            for cache in ("none", "prefix")
        )
        assert torch.equal(fast.canvas.tokens, slow.canvas.tokens)
        assert torch.equal(fast.trace, slow.trace)
        torch.testing.assert_close(fast.logprobs, slow.logprobs)
        assert not bool(fast.canvas.masked.any())
        given = ~canvas.response
        assert torch.equal(fast.canvas.tokens[given], canvas.tokens[given])


def test_rows_that_end_are_dropped_and_others_stay_what_they_are(policy: SimpleNamespace) -> None:
    canvas = block_canvas("right")
    canvas.stop_ids = tuple(range(0, 580, 9))  # so that some rows end early
    slow, fast = (
        sample(policy, canvas, config(cache, eos="stop"), draws(canvas))
        for cache in ("none", "prefix")
    )
    assert torch.equal(fast.canvas.tokens, slow.canvas.tokens)
    ends = fast.canvas.valid.sum(1)  # type: ignore[union-attr]
    assert len(set(ends.tolist())) > 1


def test_a_finished_block_and_a_shared_prompt_are_computed_once(policy: SimpleNamespace) -> None:
    canvas = block_canvas("right", lengths=(16,) * 8)
    shapes: list[tuple[int, ...]] = []

    def count(input_ids: Tensor, **inputs: object) -> object:
        shapes.append(tuple(input_ids.shape))
        return policy.model(input_ids=input_ids, **inputs)

    counted = SimpleNamespace(**{**vars(policy), "model": count})
    rollout = sample(counted, canvas, config("prefix", "static"), draws(canvas))
    # the prompt of the group in one row; then each block alone, with the one before it first
    assert shapes == [(1, 16), *[(8, 4)] * 4, (8, 8), *[(8, 4)] * 3, (8, 8), *[(8, 4)] * 3]
    assert rollout.forwards == len(shapes)


def test_the_block_size_of_the_sampler_must_be_that_of_the_network(policy: SimpleNamespace) -> None:
    canvas = block_canvas()
    with pytest.raises(ConfigError, match=r"sampler.block_size is 6; it must be null, or 4"):
        sample(policy, canvas, config("none", block_size=6), draws(canvas))
    with pytest.raises(ConfigError, match=r"sampler.cache is 'refresh'; it must be prefix or none"):
        sample(policy, canvas, config("refresh"), draws(canvas))
    with pytest.raises(ConfigError, match=r"sampler.steps is 8; it must be a multiple of the 3"):
        sample(policy, canvas, SamplerConfig(name="static", steps=8), draws(canvas))


LENGTHS = (6, 9, 9, 3, 12, 4, 6, 1, 8)


def ending(
    alignment: str = "right", lengths: tuple[int, ...] = LENGTHS, n: int = 12
) -> MaskedCanvas:
    """Rows of which some end early."""
    canvas = block_canvas(alignment, lengths, n)
    canvas.stop_ids = tuple(range(0, 580, 9))
    return canvas


def settings_of(name: str = "dynamic", steps: int = 12) -> SamplerConfig:
    own = {"threshold": 0.004} if name in ("dynamic", "fork") else {}
    return SamplerConfig(name=name, steps=steps, cache="prefix", eos="stop", **own)  # type: ignore[arg-type]


@pytest.mark.parametrize("alignment", ["left", "right"])
@pytest.mark.parametrize("name", ["dynamic", "fork", "static", "left_to_right"])
@pytest.mark.parametrize("size", [1, 2, 5])
def test_rows_are_the_same_whatever_places_they_take(
    policy: SimpleNamespace, alignment: str, name: str, size: int
) -> None:
    canvas = ending(alignment)
    one = sample(policy, canvas, settings_of(name), draws(canvas))
    several = sample(policy, canvas, settings_of(name), draws(canvas), size)
    assert torch.equal(several.canvas.tokens, one.canvas.tokens)
    assert torch.equal(several.trace, one.trace)
    assert torch.equal(several.drawn, one.drawn)  # type: ignore[arg-type]
    assert torch.equal(several.canvas.valid, one.canvas.valid)  # type: ignore[arg-type]
    torch.testing.assert_close(several.logprobs, one.logprobs)
    lengths = one.canvas.valid.sum(1).tolist()  # type: ignore[union-attr]
    assert len(set(lengths)) > 1


def test_a_full_cache_is_moved(policy: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    canvas = ending("left", LENGTHS * 3, 24)
    one = sample(policy, canvas, settings_of(steps=24), draws(canvas))
    moves = []
    move = continuous.Batch._move
    monkeypatch.setattr(continuous.Batch, "_move", lambda self: moves.append(1) or move(self))
    monkeypatch.setattr(continuous, "SLACK", 1.0)
    several = sample(policy, canvas, settings_of(steps=24), draws(canvas), 2)
    assert len(moves) > 1 and torch.equal(several.canvas.tokens, one.canvas.tokens)


def test_a_place_that_is_free_is_taken_at_once(policy: SimpleNamespace) -> None:
    canvas = ending(lengths=(8,) * 16, n=40)
    whole = sample(policy, canvas, settings_of("static", 40), draws(canvas))
    blocks = (whole.canvas.valid.sum(1).double() / 4).ceil()  # type: ignore[union-attr]
    rows: list[int] = []

    def count(input_ids: torch.Tensor, **inputs: object) -> object:
        rows.append(len(input_ids))
        return policy.model(input_ids=input_ids, **inputs)

    counted = SimpleNamespace(**{**vars(policy), "model": count})
    rollout = sample(counted, canvas, settings_of("static", 40), draws(canvas), 4)
    assert rollout.forwards == len(rows) and torch.equal(rollout.canvas.tokens, whole.canvas.tokens)
    # a block takes four passes of at most four rows, and new rows one more for their prompt
    assert sum(n == 4 for n in rows) >= 4 * int(blocks.sum() / 4 - blocks.max())
