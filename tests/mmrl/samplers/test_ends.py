"""Ends of texts: suppressed, last, stopped at, filled after, and what counts."""

from dataclasses import replace

import torch
from hypothesis import given
from hypothesis import strategies as st

from mmrl.generation.masked.samplers.denoise import after_end
from mmrl.samplers import SamplerConfig, sample
from tests.mmrl.canvases import MASK_ID, generators, guided_logits
from tests.mmrl.text_canvases import (
    EOS,
    EOT,
    LENGTH,
    SAMPLERS,
    WIDTHS,
    canvas_of,
    promise,
    wants_to_end,
)


def test_an_end_that_is_suppressed_is_never_written() -> None:
    likely = wants_to_end()
    canvas = canvas_of([3] * 16)
    free, never = (
        sample(likely, canvas, SamplerConfig(name="static", steps=6, eos=eos), generators(16))
        for eos in ("free", "suppress")
    )
    assert int((free.canvas.tokens[canvas.response] == EOS).sum()) > 16
    assert not bool((never.canvas.tokens[canvas.response] == EOS).any())


@torch.no_grad()
def test_an_end_that_comes_last_is_written_only_where_every_open_position_is_one() -> None:
    policy, canvas = wants_to_end(), canvas_of([3] * 16)
    sampler = SamplerConfig(name="static", steps=LENGTH, eos="last", temperature=0.0)
    done = sample(policy, canvas, sampler, generators(16))
    ended = 0
    for row in range(16):
        one = done[row : row + 1]
        ends = (one.canvas.tokens == EOS) | (one.canvas.tokens == EOT)
        for step in one.trace[ends & one.canvas.response].tolist():
            open_ = one.trace >= step
            before = replace(one.canvas, tokens=one.canvas.tokens.masked_fill(open_, MASK_ID))
            best = guided_logits(policy, before, open_, 0.0).argmax(-1)
            assert set(best.tolist()) <= {EOS, EOT}
            ended += 1
    assert ended > 8


def test_stop_denoises_no_block_after_the_end_and_fills_it_in() -> None:
    canvas = canvas_of([3] * 8)
    sampler = SamplerConfig(name="static", steps=LENGTH, block_size=3, eos="stop")
    done = sample(wants_to_end(), canvas, sampler, generators(8))
    free = sample(wants_to_end(), canvas, replace(sampler, eos="free"), generators(8))
    tokens, at = done.canvas.tokens[:, -LENGTH:], done.trace[:, -LENGTH:]
    stopped = 0
    for row in range(8):
        ends = [n for n, token in enumerate(tokens[row].tolist()) if token in (EOS, EOT)]
        rest = (ends[0] // 3 + 1) * 3 if ends else LENGTH
        stopped += rest < LENGTH
        assert torch.equal(tokens[row, :rest], free.canvas.tokens[row, -LENGTH:][:rest])
        assert bool((tokens[row, rest:] == EOS).all())
        assert bool((at[row, rest:] == rest - 1).all())
        assert bool((done.logprobs[row, -LENGTH:][rest:] == 0).all())
    assert stopped >= 4


def test_rows_that_have_ended_are_not_computed_any_more() -> None:
    counts = []
    policy = wants_to_end()
    policy.network.register_forward_pre_hook(
        lambda _, __, inputs: counts.append(len(inputs["input_ids"])), with_kwargs=True
    )
    sampler = SamplerConfig(name="static", steps=LENGTH, block_size=3, eos="stop", cache="prefix")
    done = sample(policy, canvas_of([3] * 8), sampler, generators(8))
    assert counts[:3] == [8, 8, 8] and counts[-1] < 8 and done.forwards == len(counts)


@promise
@given(WIDTHS, SAMPLERS, st.integers(0, 9))
def test_what_counts_goes_up_to_the_first_end_and_includes_it(
    widths: list[int], sampler: SamplerConfig, seed: int
) -> None:
    done = sample(wants_to_end(), canvas_of(widths, seed), sampler, generators(len(widths), seed))
    canvas = done.canvas
    assert canvas.valid is not None
    for tokens, counts in zip(
        canvas.tokens[:, -LENGTH:].tolist(), canvas.valid[:, -LENGTH:].tolist(), strict=True
    ):
        ends = [n for n, token in enumerate(tokens) if token in (EOS, EOT)]
        length = ends[0] + 1 if ends else LENGTH
        assert counts == [True] * length + [False] * (LENGTH - length)
    assert not bool(canvas.valid[~canvas.response].any())
    assert torch.equal(after_end(canvas), canvas.response & ~canvas.valid)


def test_leave_writes_nothing_after_an_end_until_the_text_is_whole() -> None:
    sampler = SamplerConfig(name="static", steps=LENGTH, eos="leave")
    done = sample(wants_to_end(), canvas_of([3] * 8), sampler, generators(8))
    left = 0
    for tokens, at, logprobs in zip(
        done.canvas.tokens[:, -LENGTH:],
        done.trace[:, -LENGTH:],
        done.logprobs[:, -LENGTH:],
        strict=True,
    ):
        ends = [n for n in range(LENGTH) if int(tokens[n]) in (EOS, EOT)]
        later = [n for end in ends[:1] for n in range(end + 1, LENGTH) if at[n] >= at[end]]
        assert all(int(tokens[n]) == EOS and float(logprobs[n]) == 0 for n in later)
        assert all(int(at[n]) == LENGTH - 1 for n in later)
        left += len(later)
    assert left >= 8
