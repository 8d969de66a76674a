"""Mask draws: the published rates and masks, and independence of everything around a row."""

from dataclasses import fields, replace
from typing import Any

import pytest
import torch
from torch import Generator, Tensor

from mmrl.algorithms import AlgorithmConfig
from mmrl.algorithms.bounds import BOUNDS
from mmrl.generation.masked.canvas import MaskedCanvas
from mmrl.generation.masked.samplers.denoise import find_scored
from mmrl.generation.masked.strategies import STRATEGIES
from mmrl.types import Passes, Rollout
from tests.mmrl.canvases import generators, small_canvas


def rollout_of(canvas: MaskedCanvas) -> Rollout:
    """A rollout whose trace wrote every third position in the same step."""
    place = torch.arange(canvas.tokens.shape[1]).expand_as(canvas.tokens)
    nothing = torch.zeros(canvas.tokens.shape)
    return Rollout(canvas, (place % 3).masked_fill(~canvas.response, -1), nothing, {})


NEEDS: dict[str, dict[str, Any]] = {"blockwise": {"block_size": 3}}
"""What a strategy cannot do without."""


def draw(
    canvas: MaskedCanvas,
    seeds: list[Generator],
    name: str = "random",
    iteration: int = 0,
    num_iterations: int = 4,
    **options: Any,
) -> Passes:
    values = {"min_mask_rate": 0.5, **NEEDS.get(name, {}), **options}
    declared = {field.name for field in fields(STRATEGIES[name].Config)}
    own = {key: value for key, value in values.items() if key in declared}
    config = AlgorithmConfig(strategy=name, num_iterations=num_iterations, **own)
    return STRATEGIES[name](rollout_of(canvas), config, seeds, iteration)


def behind(seed: int, used: int) -> Generator:
    """A generator from which `used` uniforms have been drawn."""
    generator = Generator().manual_seed(seed)
    torch.rand(used, generator=generator)
    return generator


@pytest.mark.parametrize(
    ("rate", "iteration", "num_iterations"), [(0.3, 2, 10), (0.625, 4, 8), (0.999, 0, 1)]
)
def test_random_masks_are_mask_grpos(
    mmada_cases: dict[str, Tensor], rate: float, iteration: int, num_iterations: int
) -> None:
    tokens = mmada_cases["maskgrpo/remask/tokens"]
    response = ~mmada_cases["maskgrpo/remask/prompt"].expand(2, -1)
    canvas = MaskedCanvas(tokens, response, None, (0, 134656), 126336)
    # there one generator draws whole rows, here one per row draws its response positions
    first, length = int(response[0].int().argmax()), tokens.shape[1]
    seeds = [behind(1234, row * length + first) for row in range(2)]
    hidden = draw(canvas, seeds, "random", iteration, num_iterations, min_mask_rate=0.0).query.mask[
        0
    ]
    expected = mmada_cases[f"maskgrpo/remask/{rate}"]
    assert torch.equal(tokens.masked_fill(hidden, canvas.mask_id), expected)


def ending_at_30(canvas: MaskedCanvas) -> MaskedCanvas:
    canvas = replace(canvas, stop_ids=(30,))
    return replace(canvas, valid=find_scored(canvas))


@pytest.mark.parametrize("name", sorted(STRATEGIES))
def test_only_hidden_response_positions_are_scored_and_nothing_after_the_end(name: str) -> None:
    canvas = small_canvas(4, 7, ragged=True)
    canvas.tokens[canvas.response] = 20
    canvas.tokens[1, 6] = canvas.tokens[2, 8] = canvas.tokens[2, 9] = 30
    ended = ending_at_30(canvas)
    assert ended.counted.sum(-1).tolist() == [7, 2, 3, 4]
    number = STRATEGIES[name].number(AlgorithmConfig(strategy=name, num_draws=5), 3, 7)
    passes = draw(ended, generators(4), name, num_draws=5)
    assert passes.query.mask.shape == (number, *canvas.tokens.shape)
    assert not bool((passes.query.mask & ~canvas.response).any())
    assert not bool((passes.scored & ~passes.query.mask).any())
    assert not bool((passes.scored & ~ended.counted).any())
    assert bool(passes.scored.any(0).any(-1).all())
    assert bool((passes.weight[~passes.scored] == 0).all() and (passes.weight >= 0).all())
    assert passes.tokens.tolist() == [7, 2, 3, 4]


@pytest.mark.parametrize("name", sorted(set(STRATEGIES) - {"trace", "forks"}))
def test_what_stood_after_the_end_is_hidden_wherever_the_text_is_hidden(name: str) -> None:
    canvas = small_canvas(1, 6)
    canvas.tokens[canvas.response] = 20
    canvas.tokens[0, 6] = 30
    passes = draw(ending_at_30(canvas), generators(1), name, num_draws=2)
    asked = passes.scored.any(-1)
    assert bool(passes.query.mask[:, 0, 7:10][asked[:, 0]].all())


@pytest.mark.parametrize(
    "name", sorted(set(STRATEGIES) - {"complementary", "trace", "forks", "left_to_right"})
)
def test_every_row_is_scored_in_every_draw(name: str) -> None:
    canvas = small_canvas(50, 3)
    settings = {"num_draws": 4, "num_iterations": 1000, "min_mask_rate": 0.0}
    passes = draw(canvas, generators(50), name, **settings)
    assert bool(passes.scored.any(-1).all())


@pytest.mark.parametrize("name", sorted(STRATEGIES))
def test_hidden_prompt_tokens_are_drawn_once_per_pass_and_never_scored(name: str) -> None:
    canvas = small_canvas(40, 6, padding=True)
    clean = draw(canvas, generators(40), name, num_draws=2)
    noisy = draw(canvas, generators(40), name, num_draws=2, prompt_mask_rate=0.25)
    assert torch.equal(noisy.scored, clean.scored)
    assert torch.equal(noisy.query.mask & canvas.response, clean.query.mask)
    assert canvas.attend is not None
    prompt = canvas.attend & ~canvas.response
    assert not bool((noisy.query.mask & ~canvas.response & ~prompt).any())
    share = float(noisy.query.mask[:, prompt].float().mean())
    assert abs(share - 0.25) < 0.08
    assert not torch.equal(noisy.query.mask[0, prompt], noisy.query.mask[1, prompt])


@pytest.mark.parametrize("name", sorted(STRATEGIES))
def test_the_draws_of_a_row_are_its_own(name: str) -> None:
    canvas = small_canvas(4, 9, ragged=True)
    options = {"num_draws": 2, "prompt_mask_rate": 0.3}
    whole = draw(canvas, generators(4), name, **options)
    for row in range(4):
        one = slice(row, row + 1)
        alone = draw(canvas[one], generators(4)[one], name, **options)
        assert torch.equal(alone.scored[: len(whole)], whole.scored[: len(alone), one])
        assert torch.equal(alone.query.mask[: len(whole)], whole.query.mask[: len(alone), one])


def test_a_rate_near_zero_hides_one_position_and_each_equally_often() -> None:
    canvas = small_canvas(3000, 3)
    settings = {"num_iterations": 10**9, "min_mask_rate": 0.0}
    passes = draw(canvas, generators(3000), **settings)
    counts = passes.query.mask[0].sum(0)[4:7]
    assert int(passes.query.mask.sum()) == 3000 and bool(((counts - 1000).abs() < 100).all())


def test_empty_passes_that_keep_processes_in_step_change_no_estimate() -> None:
    canvas = small_canvas(3, 6)
    passes = draw(canvas, generators(3), "trace", slice_size=2)
    longer = passes.pad_draws(len(passes) + 3)
    assert len(longer) == len(passes) + 3 and not bool(longer.query.mask[len(passes) :].any())
    logprobs = torch.full(longer.scored.shape, -1.0)
    plain = BOUNDS["elbo"](logprobs[: len(passes)] * passes.scored, passes).values
    torch.testing.assert_close(BOUNDS["elbo"](logprobs * longer.scored, longer).values, plain)


CHANGED = {"min_mask_rate": 0.9, "max_mask_rate": 0.7, "include_full": True, "slice_size": 2}
CHANGED |= {"num_slices": 2}


@pytest.mark.parametrize("setting", CHANGED)
@pytest.mark.parametrize("name", STRATEGIES)
def test_a_strategy_reads_the_options_that_it_declares(name: str, setting: str) -> None:
    canvas = small_canvas(2, 12)
    changed = {setting: CHANGED[setting]}
    one, other = (draw(canvas, generators(2), name, **options) for options in ({}, changed))
    same = one.query.mask.shape == other.query.mask.shape and torch.equal(
        one.query.mask, other.query.mask
    )
    declared = {field.name for field in fields(STRATEGIES[name].Config)}
    assert same != (setting in declared)
