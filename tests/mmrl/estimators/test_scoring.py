"""Scoring against the public trainer, against a naive computation, and against exact sums."""

from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from mmrl.estimators import score
from mmrl.generation.masked.canvas import MaskedCanvas
from mmrl.generation.masked.hidden import Hidden
from mmrl.samplers import SamplerConfig, sample
from mmrl.types import Passes, Rollout
from tests.mmrl.canvases import generators, mmada_canvas, small_canvas
from tests.mmrl.estimators.test_masks import behind, draw
from tests.models.networks import bare_policy, small_network


def finished(rows: int = 3, positions: int = 6, padding: bool = False) -> Rollout:
    canvas = small_canvas(rows, positions, padding=padding)
    policy = bare_policy(small_network(1))
    return sample(policy, canvas, SamplerConfig(steps=3), generators(rows))


def naive(
    policy: SimpleNamespace,
    canvas: MaskedCanvas,
    passes: Passes,
    cfg_scale: float,
    temperature: float,
) -> tuple[Tensor, Tensor]:
    """Log-probs and entropies from the logits of every position over the whole vocabulary."""
    logprobs, entropies = [], []
    for hidden, scored in zip(passes.query.mask, passes.scored, strict=True):
        tokens = canvas.tokens.masked_fill(hidden, canvas.mask_id)
        logits = policy.model(input_ids=tokens, attention_mask=canvas.attend).logits
        if cfg_scale:
            branch = torch.where(canvas.response, tokens, canvas.uncond_tokens)
            other = policy.model(input_ids=branch, attention_mask=canvas.uncond_attend).logits
            logits = (1 + cfg_scale) * logits - cfg_scale * other
        low, high = canvas.columns
        logp = (logits[..., low:high] / temperature).log_softmax(-1)
        codes = (canvas.tokens - low).clamp(0, high - low - 1)
        logprobs.append(logp.gather(-1, codes[..., None]).squeeze(-1) * scored)
        entropies.append(-(logp.exp() * logp).sum(-1) * scored)
    return torch.stack(logprobs), torch.stack(entropies)


def test_log_probs_are_those_of_mask_grpos_trainer(
    mmada: SimpleNamespace, mmada_cases: dict[str, Tensor]
) -> None:
    canvas = mmada_canvas(mmada_cases, masked_padding=False)
    codes = 7 * torch.arange(16).expand(2, -1)
    canvas.tokens[canvas.response] = (codes + canvas.columns[0]).flatten()
    length, first = canvas.tokens.shape[1], int(canvas.response[0].int().argmax())
    for iteration in range(4):
        seeds = [behind(iteration + 1, row * length + first) for row in range(2)]
        passes = draw(canvas, seeds, iteration=iteration, min_mask_rate=0.5)
        hidden = passes.query.mask[:, canvas.response].view(2, 16)
        assert torch.equal(hidden, mmada_cases["maskgrpo/logps/hidden"][iteration])
        passes.scored = canvas.response[None]
        with torch.no_grad():
            logprobs = score(mmada, canvas, passes)[0][:, canvas.response].view(2, 16)
        expected = mmada_cases["maskgrpo/logps/logprobs"][iteration]
        torch.testing.assert_close(logprobs, expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("cfg_scale", [0.0, 1.5])
@pytest.mark.parametrize("temperature", [1.0, 0.5])
@pytest.mark.parametrize("padding", [False, True])
def test_scores_and_gradients_equal_the_naive_ones(
    cfg_scale: float, temperature: float, padding: bool
) -> None:
    policy, canvas = bare_policy(small_network()), finished(padding=padding).canvas
    passes = draw(canvas, generators(3), num_draws=3, iteration=1)
    weight = torch.randn(passes.scored.shape, generator=generators(1)[0])
    results = []
    for compute in (score, naive):
        policy.model.zero_grad()
        logprobs, entropy, *_ = compute(policy, canvas, passes, cfg_scale, temperature)
        (logprobs * weight).sum().backward()
        gradients = [parameter.grad.clone() for parameter in policy.model.parameters()]
        results.append([logprobs.detach(), entropy.detach(), *gradients])
    for ours, expected in zip(*results, strict=True):
        assert (ours - expected).abs().max() <= 5e-5 * max(1.0, float(expected.abs().max()))


def test_only_scored_positions_carry_a_value_or_a_gradient() -> None:
    policy, canvas = bare_policy(small_network()), finished().canvas
    passes = draw(canvas, generators(3), num_draws=2)
    passes.scored = passes.query.mask & (torch.arange(canvas.tokens.shape[1]) % 2 == 0)
    logprobs, entropy, *_ = score(policy, canvas, passes)
    assert entropy is not None
    assert bool((logprobs[~passes.scored] == 0).all() and (entropy[~passes.scored] == 0).all())
    assert bool((logprobs[passes.scored] < 0).all()) and not entropy.requires_grad
    logprobs.masked_fill(passes.scored, 0).sum().backward()
    assert all(bool((p.grad == 0).all()) for p in policy.model.parameters() if p.grad is not None)
    policy.model.zero_grad()
    score(policy, canvas, passes)[0].sum().backward()
    low, high = canvas.columns
    gradient = policy.model.head.weight.grad
    assert bool((gradient[:low] == 0).all() and (gradient[high:] == 0).all())
    assert bool((gradient[low:high] != 0).any())


def test_the_same_weights_give_the_same_scores_bit_for_bit_with_and_without_gradient() -> None:
    policy, canvas = bare_policy(small_network()), finished().canvas
    passes = draw(canvas, generators(3), num_draws=2)
    new, *_ = score(policy, canvas, passes)
    with torch.no_grad():
        old, *_ = score(policy, canvas, passes)
    assert torch.equal((new - old).exp(), torch.ones_like(new))


def test_scores_do_not_depend_on_the_other_rows_of_the_batch() -> None:
    policy, canvas = bare_policy(small_network()), finished(padding=True).canvas
    passes = draw(canvas, generators(3), num_draws=2)
    whole, *_ = score(policy, canvas, passes)
    for row in range(3):
        one = slice(row, row + 1)
        alone, *_ = score(policy, canvas[one], passes[one])
        torch.testing.assert_close(alone, whole[:, one], atol=1e-5, rtol=0)


def test_rows_that_a_pass_does_not_score_are_not_asked() -> None:
    network = small_network()
    canvas, asked = finished().canvas, []
    network.register_forward_pre_hook(
        lambda module, args, kwargs: asked.append(len(kwargs["input_ids"])), with_kwargs=True
    )
    passes = draw(canvas, generators(3), num_draws=3)
    whole, *_ = score(bare_policy(network), canvas, passes)
    passes.scored[1, :2] = False
    passes.scored[2] = False
    some, entropy, *_ = score(bare_policy(network), canvas, passes)
    assert entropy is not None and asked == [3, 3, 3, 3, 1, 1]
    assert torch.equal(some[0], whole[0]) and bool((some[2] == 0).all())
    torch.testing.assert_close(some[1, 2], whole[1, 2])
    assert bool((some[1, :2] == 0).all() and (entropy[1, :2] == 0).all())
    some[2].sum().backward()  # a pass that scores nothing has a gradient, and it is zero
    assert all(bool((p.grad == 0).all()) for p in network.parameters() if p.grad is not None)


def test_rows_with_equal_padding_are_scored_without_a_mask_as_with_it() -> None:
    canvas = finished(rows=2).canvas
    padded = canvas.pad_left(5)
    hidden = canvas.response & (torch.arange(canvas.tokens.shape[1]) % 2 == 0)
    network, seen = small_network(1).double(), []
    network.register_forward_pre_hook(
        lambda _, args, inputs: seen.append(inputs.get("attention_mask")), with_kwargs=True
    )
    scores = [
        score(
            bare_policy(network), each, Passes(Hidden(mask[None]), mask[None], mask[None].float())
        )
        for each, mask in ((canvas, hidden), (padded, F.pad(hidden, (5, 0))))
    ]
    assert seen == [None, None] and padded.attend is not None
    for alone, behind_padding in zip(scores[0][:2], scores[1][:2], strict=True):
        assert torch.equal(F.pad(alone, (5, 0)), behind_padding)


def test_rows_of_unequal_padding_keep_their_mask() -> None:
    canvas = small_canvas(3, 6, padding=True)
    trimmed, dropped = canvas.pad_left(2).trim()
    assert dropped == 2 and torch.equal(trimmed.attend, canvas.attend)
    assert torch.equal(trimmed.tokens, canvas.tokens)


def test_a_column_that_the_unconditional_row_attends_to_is_kept() -> None:
    canvas = small_canvas(2, 6).pad_left(3)
    canvas.uncond_tokens, canvas.uncond_attend = canvas.tokens.clone(), None
    trimmed, dropped = canvas.trim()
    assert dropped == 0 and torch.equal(trimmed.tokens, canvas.tokens)
