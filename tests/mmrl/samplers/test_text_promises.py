"""What text sampling promises, whatever the prompts and the settings."""

from dataclasses import replace
from types import SimpleNamespace

import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from mmrl.generation import kinds
from mmrl.samplers import SamplerConfig, sample
from tests.mmrl.canvases import generators
from tests.mmrl.text_canvases import (
    EXACT,
    LENGTH,
    POLICY,
    SAMPLERS,
    WIDTHS,
    canvas_of,
    promise,
)

SHARED = SimpleNamespace(**{**vars(POLICY), "shares_forwards": True})
"""A policy whose weights other processes have parts of."""


@promise
@given(WIDTHS, SAMPLERS, st.integers(0, 9))
def test_prompts_of_different_lengths_get_together_what_each_gets_alone(
    widths: list[int], sampler: SamplerConfig, seed: int
) -> None:
    canvas = canvas_of(widths, seed)
    together = sample(EXACT, canvas, sampler, generators(len(widths), seed))
    for row, own in enumerate(widths):
        one = canvas[row : row + 1]
        first = one.tokens.shape[1] - own - LENGTH
        short = replace(
            one,
            attend=None,
            uncond_attend=None,
            tokens=one.tokens[:, first:],
            response=one.response[:, first:],
            uncond_tokens=one.uncond_tokens[:, first:],
        )
        draws = generators(len(widths), seed)[row : row + 1]
        alone = sample(EXACT, short, sampler, draws)
        assert torch.equal(alone.canvas.tokens, together.canvas.tokens[row : row + 1, first:])
        assert torch.equal(alone.trace, together.trace[row : row + 1, first:])


@promise
@given(SAMPLERS, st.integers(0, 9))
def test_blocks_are_written_one_after_the_other(sampler: SamplerConfig, seed: int) -> None:
    sampler = replace(sampler, block_size=4, steps=12, eos="free")
    done = sample(POLICY, canvas_of([3, 5], seed), sampler, generators(2, seed))
    at = done.trace[:, -LENGTH:].view(2, 3, 4)
    for block in range(3):
        assert bool((at[:, block] // 4 == block).all())


@promise
@given(SAMPLERS, WIDTHS, WIDTHS, st.integers(0, 9))
def test_fixed_rules_take_the_same_number_of_forward_passes_whatever_is_drawn(
    sampler: SamplerConfig, widths: list[int], others: list[int], seed: int
) -> None:
    assume(kinds.SAMPLERS[sampler.name].has_fixed_forwards(sampler))
    some = sample(SHARED, canvas_of(widths, seed), sampler, generators(len(widths), seed))
    more = sample(SHARED, canvas_of(others, seed + 1), sampler, generators(len(others), seed + 1))
    assert some.forwards == more.forwards
    alone = sample(POLICY, canvas_of(widths, seed), sampler, generators(len(widths), seed))
    assert torch.equal(alone.canvas.tokens, some.canvas.tokens)
    assert torch.equal(alone.trace, some.trace)
