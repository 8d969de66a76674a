"""Guidance by text and by a source image."""

import pytest
import torch

from mmrl.estimators import score
from mmrl.generation.masked.hidden import Hidden
from mmrl.samplers import SamplerConfig, sample
from mmrl.types import Passes, Rollout
from tests.mmrl.canvases import generators, guided_logits, small_canvas
from tests.models.networks import bare_policy, small_network

POLICY = bare_policy(small_network())
EXACT = bare_policy(small_network().double())


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
