"""Sampling with cached keys and values: exact where theory says so, and how much is fed."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mmrl.samplers import SamplerConfig, sample
from tests.mmrl.canvases import generators
from tests.mmrl.text_canvases import (
    POLICY,
    SAMPLERS,
    WIDTHS,
    canvas_of,
    promise,
)
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
