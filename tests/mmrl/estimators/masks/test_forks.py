"""forks: the draws of the sampler `fork` alone are scored, and their probabilities are exact."""

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor

from mmrl.algorithms import AlgorithmConfig, LossInputs, count_batch, load_algorithm, policy_loss
from mmrl.estimators import draw_passes, score
from mmrl.generation.masked.canvas import MaskedCanvas
from mmrl.samplers import SamplerConfig, sample
from mmrl.types import Passes, Rollout
from tests.mmrl.canvases import generators, guided_logits, small_canvas
from tests.mmrl.estimators.masks.test_trace import rollout, shown
from tests.models.networks import bare_policy, small_network

EXACT = bare_policy(small_network().double())
TEMPERATURE, THRESHOLD, FIRST, N = 0.7, 0.7, 12, 4
SAMPLER = SamplerConfig(name="fork", steps=N, temperature=TEMPERATURE, threshold=THRESHOLD)


def forks(done: Rollout, **options: Any) -> Passes:
    config = AlgorithmConfig(strategy="forks", **options)
    return draw_passes(done, config, generators(len(done)))


def test_a_pass_shows_the_state_of_a_draw_and_scores_that_alone() -> None:
    done = rollout([0, 1, 1, 3, 2])
    done.drawn = torch.tensor([[True, False, False, True, False]])
    assert shown(forks(done)) == [("#####", "x...."), ("...#.", "...x.")]
    assert shown(forks(done, slice_size=2)) == [("#####", "x...."), ("...##", "...x.")]
    done.drawn[:] = False
    assert shown(forks(done)) == [(".....", ".....")]


def few_columns(rows: int) -> MaskedCanvas:
    """Four open positions of a choice of three tokens; all rows have the prompt of one."""
    canvas = small_canvas(1, N)[torch.zeros(rows, dtype=torch.long)]
    return replace(canvas, columns=(FIRST, FIRST + 3))


@cache
def leaves() -> dict[tuple[int, ...], tuple[float, tuple[bool, ...]]]:
    """Every completion that the sampler can write: its log-prob, and which tokens were drawn."""
    return {tuple(tokens): (value, tuple(drawn)) for tokens, value, drawn in list_leaves([-1] * N)}


@torch.no_grad()
def list_leaves(written: list[int]) -> Iterator[tuple[list[int], float, list[bool]]]:
    """All ends of a completion of which some tokens are written, -1 for the others."""
    if -1 not in written:
        yield written, 0.0, [False] * N
        return
    canvas = few_columns(1)
    places = canvas.response[0].nonzero().flatten().tolist()
    for place, token in zip(places, written, strict=True):
        canvas.tokens[0, place] = canvas.mask_id if token < 0 else token
    logits = guided_logits(EXACT, canvas, canvas.masked, 0.0)
    open_now = [n for n in range(N) if written[n] < 0]
    best = logits.softmax(-1).max(-1)
    certain = {
        n: FIRST + column
        for n, column, sure in zip(open_now, best.indices.tolist(), best.values, strict=True)
        if sure >= THRESHOLD
    }
    if certain:
        yield from list_leaves([certain.get(n, token) for n, token in enumerate(written)])
        return
    place, logprobs = open_now[0], (logits[0] / TEMPERATURE).log_softmax(-1)
    for column, value in enumerate(logprobs.tolist()):
        rest = [FIRST + column if n == place else token for n, token in enumerate(written)]
        for tokens, later, drawn in list_leaves(rest):
            yield tokens, value + later, [d or n == place for n, d in enumerate(drawn)]


def test_the_completions_of_all_draws_add_up_to_one() -> None:
    chances = torch.tensor([value for value, _ in leaves().values()]).exp()
    assert float(chances.sum()) == pytest.approx(1, abs=1e-6)
    numbers = {sum(drawn) for _, drawn in leaves().values()}
    assert max(numbers) > min(numbers) > 0, "some of the completions have certain tokens"


@torch.no_grad()
def test_scores_are_the_exact_log_probs_of_what_was_sampled() -> None:
    rows = 600
    done = sample(EXACT, few_columns(rows), SAMPLER, generators(rows))
    assert done.drawn is not None
    passes = forks(done)
    found = score(EXACT, done.canvas, passes, temperature=TEMPERATURE).logprobs.sum(0)
    torch.testing.assert_close(found, done.logprobs, atol=1e-6, rtol=0)
    response = done.canvas.response
    counts = dict.fromkeys(leaves(), 0)
    for row in range(rows):
        tokens = tuple(done.canvas.tokens[row, response[row]].tolist())
        value, drawn = leaves()[tokens]
        assert tuple(done.drawn[row, response[row]].tolist()) == drawn
        assert float(found[row].sum()) == pytest.approx(value, abs=1e-5)
        counts[tokens] += 1
    for tokens, (value, _) in leaves().items():
        chance = torch.tensor(value).exp().item()
        error = (chance * (1 - chance) / rows) ** 0.5
        assert abs(counts[tokens] / rows - chance) < 4 * error + 1e-3


@torch.no_grad()
def test_a_row_is_scored_as_it_is_alone() -> None:
    sampler = replace(SAMPLER, steps=8, temperature=1.0)
    done = sample(EXACT, small_canvas(5, 8, padding=True), sampler, generators(5))
    assert done.drawn is not None
    assert bool(done.drawn.any() and (done.canvas.response & ~done.drawn).any())
    whole = score(EXACT, done.canvas, forks(done)).logprobs.sum(0)
    parts: list[Tensor] = []
    for row in range(5):
        one = done[row : row + 1]
        parts.append(score(EXACT, one.canvas, forks(one)).logprobs.sum(0))
    torch.testing.assert_close(torch.cat(parts), whole, atol=1e-6, rtol=0)


def test_the_ratio_is_one_at_the_start_and_only_draws_have_a_gradient() -> None:
    done = sample(EXACT, small_canvas(4, 8), replace(SAMPLER, steps=8), generators(4))
    method = load_algorithm({"name": "fork_grpo"})
    passes = forks(done)
    logprobs = torch.where(passes.scored, -1.0, 0.0).requires_grad_()
    with torch.no_grad():
        old = score(EXACT, done.canvas, passes)
    new = score(EXACT, done.canvas, passes)
    advantages, size = torch.tensor([1.0, -1.0, 0.5, -0.5]), count_batch(done, passes, method)
    _, metrics = policy_loss(LossInputs(passes, new, advantages, old=old), method, size)
    assert float(metrics["ratio"]) == 1 and float(metrics["approx_kl"]) == 0
    given = LossInputs(passes, old._replace(logprobs=logprobs), advantages)
    policy_loss(given, method, size)[0].backward()
    assert logprobs.grad is not None and done.drawn is not None
    assert torch.equal(logprobs.grad.ne(0).any(0), done.drawn)
    number = done.drawn.sum(1).clamp(min=1)
    expected = -(advantages / number / 4)[:, None] * done.drawn
    torch.testing.assert_close(logprobs.grad.sum(0), expected)
