"""Sampling with cached keys and values: exact where theory says so, and how much is fed."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from mmrl.generation import kinds
from mmrl.samplers import SamplerConfig, sample
from tests.mmrl.canvases import generators
from tests.mmrl.text_canvases import EXACT, LENGTH, POLICY, SAMPLERS, WIDTHS, canvas_of, promise
from tests.models.networks import bare_policy, small_network

SHALLOW = bare_policy(small_network(num_layers=1))


@promise
@given(WIDTHS, SAMPLERS, st.integers(0, 9), st.sampled_from(["prefix", "dual"]))
def test_a_cache_is_exact_where_keys_do_not_depend_on_what_is_written(
    widths: list[int], sampler: SamplerConfig, seed: int, cache: Any
) -> None:
    """In the first layer keys and values of a position follow from its own token, so a network of
    one layer has nothing stale: a cache without a window changes no token."""
    sampler = replace(sampler, cache="none", window=None)
    plain, cached = (
        sample(SHALLOW, canvas_of(widths, seed), kept, generators(len(widths), seed))
        for kept in (sampler, replace(sampler, cache=cache))
    )
    assert torch.equal(plain.canvas.tokens, cached.canvas.tokens)
    torch.testing.assert_close(plain.logprobs, cached.logprobs, atol=1e-5, rtol=0)


@promise
@given(WIDTHS, SAMPLERS, st.integers(0, 9), st.sampled_from(["prefix", "dual"]))
def test_a_cache_that_is_renewed_at_every_step_changes_nothing(
    widths: list[int], sampler: SamplerConfig, seed: int, cache: Any
) -> None:
    sampler = replace(sampler, cache="none", window=None, block_size=2, steps=6)
    plain, cached = (
        sample(POLICY, canvas_of(widths, seed), kept, generators(len(widths), seed))
        for kept in (sampler, replace(sampler, cache=cache, window=1))
    )
    assert torch.equal(plain.canvas.tokens, cached.canvas.tokens)
    torch.testing.assert_close(plain.logprobs, cached.logprobs, atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    ("cache", "window", "later"),
    [("prefix", None, 15), ("prefix", 2, 8), ("prefix", 99, 15), ("dual", None, 6), ("dual", 2, 8)],
)
def test_a_window_decides_how_many_columns_later_steps_compute(
    cache: Any, window: int | None, later: int
) -> None:
    widths = []
    policy = bare_policy(small_network())
    policy.network.register_forward_pre_hook(
        lambda _, __, inputs: widths.append(inputs["input_ids"].shape[1]), with_kwargs=True
    )
    canvas = canvas_of([4])
    canvas.tokens = torch.nn.functional.pad(canvas.tokens, (0, 3), value=7)
    canvas.response = torch.nn.functional.pad(canvas.response, (0, 3), value=False)
    sampler = SamplerConfig(name="static", steps=6, block_size=6, cache=cache, window=window)
    sample(policy, canvas, sampler, generators(1))
    assert widths[:3] == [19, later, later] and widths[3] == 19


def test_a_cache_needs_the_same_response_columns_in_every_row() -> None:
    canvas = canvas_of([4, 4])
    canvas.response[1, 6] = False
    canvas.tokens[1, 6] = 7
    with pytest.raises(ValueError, match="same response columns in every row"):
        sample(POLICY, canvas, SamplerConfig(steps=2, cache="prefix"), generators(2))
    with pytest.raises(ValueError, match=r"\[11, 12\] response positions"):
        sample(POLICY, canvas, SamplerConfig(steps=2, block_size=1), generators(2))


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
