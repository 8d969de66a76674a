"""What every commit rule promises, whatever the model, the canvas and the settings.

Promises about batches of different shapes are tested in float64: processors sum the products of
differently shaped matrices in different orders, and a draw that falls within float32 rounding of a
boundary may then give another token.
"""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Generator, Tensor

from mmrl.config import merge
from mmrl.estimators import score
from mmrl.generation.masked.canvas import MaskedCanvas
from mmrl.generation.masked.hidden import Hidden
from mmrl.generation.masked.samplers import RULES
from mmrl.generation.masked.samplers.rule import filter_logits
from mmrl.generation.masked.samplers.scheduled import SCHEDULES
from mmrl.generation.tokens.noise import row_seeds
from mmrl.samplers import SamplerConfig, sample
from mmrl.types import Passes, Rollout
from tests.mmrl.canvases import MASK_ID, VOCAB, generators, guided_logits, small_canvas
from tests.models.networks import bare_policy, small_network

POLICY = bare_policy(small_network())
EXACT = bare_policy(small_network().double())


SAMPLERS = st.builds(
    lambda **options: merge(SamplerConfig, options),  # leaves out what the rule does not read
    name=st.sampled_from(sorted(RULES)),
    steps=st.integers(1, 12),
    schedule=st.sampled_from(sorted(SCHEDULES)),
    cfg_scale=st.sampled_from([0.0, 1.5]),
    temperature=st.sampled_from([0.0, 0.7, 1.0]),
    target=st.sampled_from(["confidence", "random"]),
    threshold=st.sampled_from([0.0, 0.3, 0.9]),
    top_k=st.sampled_from([0, 5]),
    top_p=st.sampled_from([0.9, 1.0]),
)
CANVASES = st.builds(
    small_canvas,
    rows=st.integers(1, 4),
    positions=st.integers(2, 9),
    seed=st.integers(0, 99),
    padding=st.booleans(),
    ragged=st.booleans(),
    given=st.booleans(),
)
promise = settings(derandomize=True, deadline=None, max_examples=25)


@promise
@given(CANVASES, SAMPLERS, st.integers(0, 9))
def test_every_mask_is_written_once_and_nothing_else_is_touched(
    canvas: MaskedCanvas, config: SamplerConfig, seed: int
) -> None:
    before = canvas.tokens.clone()
    done = sample(POLICY, canvas, config, generators(len(canvas), seed))
    open_at_start = before == MASK_ID
    assert torch.equal(canvas.tokens, before)
    assert torch.equal(done.canvas.tokens[~open_at_start], before[~open_at_start])
    written = done.canvas.tokens[open_at_start]
    assert bool(((written >= VOCAB[0]) & (written < VOCAB[1])).all())
    assert torch.equal(done.trace >= 0, open_at_start)
    assert int(done.trace.max()) < config.steps
    assert bool((done.logprobs[~open_at_start] == 0).all())
    assert bool((done.logprobs[open_at_start] <= 0).all())


@promise
@given(CANVASES, SAMPLERS, st.integers(0, 9))
def test_a_row_of_a_batch_is_what_it_is_alone(
    canvas: MaskedCanvas, config: SamplerConfig, seed: int
) -> None:
    together = sample(EXACT, canvas, config, generators(len(canvas), seed))
    for row in range(len(canvas)):
        one = slice(row, row + 1)
        alone = sample(EXACT, canvas[one], config, generators(len(canvas), seed)[one])
        assert torch.equal(alone.canvas.tokens, together.canvas.tokens[one])
        assert torch.equal(alone.trace, together.trace[one])
        torch.testing.assert_close(alone.logprobs, together.logprobs[one], atol=1e-5, rtol=0)


@pytest.mark.parametrize("name", sorted(RULES))
def test_different_seeds_give_different_canvases(name: str) -> None:
    canvas, config = small_canvas(4, 9), SamplerConfig(name=name, steps=4)
    one, two = (sample(POLICY, canvas, config, generators(4, seed)) for seed in (1, 2))
    assert (one.canvas.tokens != two.canvas.tokens).any(1).sum() >= 3


def test_a_rollout_keeps_the_seed_of_each_row() -> None:
    canvas, config = small_canvas(5, 9), SamplerConfig(steps=4)
    done = sample(POLICY, canvas, config, generators(5))
    assert done.seeds is not None and done.seeds.tolist() == row_seeds(generators(5), 5)
    assert torch.equal(done[torch.tensor([4, 1])].seeds, done.seeds[[4, 1]])
    assert torch.equal(Rollout.join([done[:2], done[2:]]).seeds, done.seeds)


@promise
@given(CANVASES, SAMPLERS, st.integers(0, 9))
def test_replaying_the_recorded_trace_gives_the_recorded_log_probs(
    canvas: MaskedCanvas, config: SamplerConfig, seed: int
) -> None:
    done = sample(POLICY, canvas, config, generators(len(canvas), seed))
    torch.testing.assert_close(replay(done, config) * done.drawn, done.logprobs, atol=1e-5, rtol=0)


@torch.no_grad()
def replay(done: Rollout, config: SamplerConfig) -> Tensor:
    """Log-probs [B, L] of each token given what had been written before its step."""
    logprobs = torch.zeros_like(done.logprobs)
    for step in range(config.steps):
        now = done.trace == step
        hidden = done.trace >= step
        before = replace(done.canvas, tokens=done.canvas.tokens.masked_fill(hidden, MASK_ID))
        logp = filter_logits(guided_logits(POLICY, before, now, config.cfg_scale), config)
        target = done.canvas.tokens[now, None] - VOCAB[0]
        logprobs[now] = logp.log_softmax(-1).gather(-1, target).squeeze(-1)
    return logprobs


@torch.no_grad()
@pytest.mark.parametrize("cfg_scale", [0.0, 2.0])
@pytest.mark.parametrize("padding", [False, True])
def test_computing_equal_rows_once_gives_the_same_logits(cfg_scale: float, padding: bool) -> None:
    canvas = small_canvas(3, padding=padding)[torch.tensor([0, 1, 0, 2, 1])]
    where = canvas.masked
    where[2, 5:8] = where[4, :6] = False
    each = guided_logits(POLICY, canvas, where, cfg_scale)
    once = guided_logits(POLICY, canvas, where, cfg_scale, shared=True)
    torch.testing.assert_close(once, each, atol=1e-5, rtol=0)


def test_a_group_is_computed_once_until_its_first_write() -> None:
    rows = []
    model = small_network()
    model.register_forward_pre_hook(
        lambda _, __, inputs: rows.append(len(inputs["input_ids"])), with_kwargs=True
    )
    group = small_canvas(1, 9)[torch.zeros(4, dtype=torch.long)]
    config = SamplerConfig(name="maskgit", steps=3, cfg_scale=1.0)
    sample(bare_policy(model), group, config, generators(4))
    assert rows == [2, 8, 8]


LOGITS = st.integers(0, 999).map(
    lambda seed: 3 * torch.randn(6, 24, generator=Generator().manual_seed(seed))
)


@promise
@given(LOGITS, st.integers(1, 30))
def test_top_k_keeps_the_k_most_likely(logits: Tensor, k: int) -> None:
    kept = filter_logits(logits, SamplerConfig(top_k=k)).isfinite()
    assert kept.sum(-1).tolist() == [min(k, 24)] * 6
    least = logits.masked_fill(~kept, torch.inf).amin(-1)
    assert bool((logits.masked_fill(kept, -torch.inf).amax(-1) < least).all())


@promise
@given(LOGITS, st.floats(0.01, 0.99), st.sampled_from([0.5, 1.0, 2.0]))
def test_top_p_keeps_the_fewest_likely_tokens_that_reach_p(
    logits: Tensor, p: float, temperature: float
) -> None:
    kept = filter_logits(logits, SamplerConfig(top_p=p, temperature=temperature)).isfinite()
    probs = (logits / temperature).softmax(-1)
    mass = (probs * kept).sum(-1)
    least = probs.masked_fill(~kept, torch.inf).amin(-1)
    assert bool((mass >= p - 1e-5).all())
    assert bool((mass - least < p + 1e-5).all())
    assert bool((probs.masked_fill(kept, 0).amax(-1) <= least).all())


@pytest.mark.parametrize("count", [1, 4])
def test_as_many_generators_as_rows_are_asked_for(count: int) -> None:
    with pytest.raises(ValueError, match=f"{count} generators for 3 rows"):
        sample(POLICY, small_canvas(3), SamplerConfig(), generators(count))


def test_guidance_needs_a_branch() -> None:
    canvas = replace(small_canvas(2), uncond_tokens=None)
    with pytest.raises(ValueError, match="cfg_scale > 0 needs"):
        sample(POLICY, canvas, SamplerConfig(cfg_scale=1.0), generators(2))
    assert sample(POLICY, canvas, SamplerConfig(), generators(2)).settings["cfg_scale"] == 0


@pytest.mark.parametrize("padding", [False, True])
@pytest.mark.parametrize(("text", "image"), [(2.5, 4.0), (0.0, 4.0), (2.5, 0.0)])
def test_two_guidances_add_the_differences_to_both_branches(
    text: float, image: float, padding: bool
) -> None:
    canvas = small_canvas(padding=padding, image=True)
    branches = (canvas, canvas.unconditional(), canvas.image_unconditional())
    whole, no_text, no_image = (guided_logits(EXACT, s, canvas.masked, 0.0) for s in branches)
    expected = whole + text * (whole - no_text) + image * (whole - no_image)
    found = guided_logits(EXACT, canvas, canvas.masked, text, image)
    torch.testing.assert_close(found, expected, atol=1e-9, rtol=0)
    assert not torch.allclose(found, whole, atol=1e-3)


def test_rows_are_shared_cut_and_joined_with_their_branches() -> None:
    canvas = small_canvas(rows=4, padding=True, image=True)
    where = canvas.masked
    each = guided_logits(POLICY, canvas, where, 1.0, 2.0).view(4, -1)
    once = guided_logits(POLICY, canvas, where, 1.0, 2.0, shared=True).view(4, -1)
    torch.testing.assert_close(once, each, atol=1e-5, rtol=0)
    row = guided_logits(POLICY, canvas[2:3], where[2:3], 1.0, 2.0).view(-1)
    torch.testing.assert_close(row, each[2], atol=1e-5, rtol=0)
    short = sample(POLICY, small_canvas(image=True), SamplerConfig(steps=2), generators(3))
    long = sample(
        POLICY, small_canvas(positions=9, image=True), SamplerConfig(steps=2), generators(3)
    )
    joined = Rollout.join([short, long]).canvas
    for part, rows in ((short.canvas, joined[:3]), (long.canvas, joined[3:])):
        found, alone = (
            guided_logits(POLICY, c.hide(c.response), c.response, 1.0, 2.0) for c in (rows, part)
        )
        torch.testing.assert_close(found, alone, atol=5e-5, rtol=0)


def test_scores_with_both_guidances_are_the_log_probs_of_the_rollout() -> None:
    config = SamplerConfig(steps=1, cfg_scale=1.0, image_guidance_scale=2.0, temperature=0.8)
    done = sample(POLICY, small_canvas(image=True), config, generators(3))
    hidden = done.canvas.response[None]
    passes = Passes(Hidden(hidden), hidden, hidden.float())
    found = score(POLICY, done.canvas, passes, 1.0, 0.8, 2.0).logprobs[0]
    torch.testing.assert_close(found, done.logprobs, atol=1e-5, rtol=0)
    without = score(POLICY, done.canvas, passes, 1.0, 0.8).logprobs[0]
    assert not torch.allclose(without, done.logprobs, atol=1e-3)
