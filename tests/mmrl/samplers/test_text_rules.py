"""What each rule writes, and in which order."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from mmrl.config import ConfigError
from mmrl.generation.masked.samplers import RULES
from mmrl.generation.masked.samplers.confidence import margin, negative_entropy, probability
from mmrl.samplers import SamplerConfig, check_sampler, sample
from tests.mmrl.canvases import MASK_ID, generators, guided_logits
from tests.mmrl.text_canvases import LENGTH, POLICY, canvas_of
from tests.models.networks import bare_policy, small_network


def test_static_writes_an_even_share_at_each_step_and_the_remainder_first() -> None:
    sampler = SamplerConfig(name="static", steps=6, block_size=6)
    done = sample(POLICY, canvas_of([4, 4]), replace(sampler, steps=8), generators(2))
    for row in done.trace[:, -LENGTH:]:
        assert [int((row == step).sum()) for step in range(8)] == [2, 2, 1, 1, 2, 2, 1, 1]


def test_left_to_right_writes_in_reading_order() -> None:
    sampler = SamplerConfig(name="left_to_right", steps=6, block_size=4, temperature=0.0)
    with pytest.raises(ConfigError, match=r"sampler\.steps is 8"):
        sample(POLICY, canvas_of([4]), replace(sampler, steps=8), generators(1))
    done = sample(POLICY, canvas_of([4, 2]), sampler, generators(2))
    assert done.trace[:, -LENGTH:].tolist() == [[n // 2 for n in range(LENGTH)]] * 2


@torch.no_grad()
def test_left_to_right_one_by_one_is_greedy_autoregressive_decoding() -> None:
    canvas = canvas_of([4])
    sampler = SamplerConfig(name="left_to_right", steps=LENGTH, temperature=0.0)
    done = sample(POLICY, canvas, sampler, generators(1))
    for column in range(4, 4 + LENGTH):
        logits = POLICY.model(input_ids=canvas.tokens).logits[0, column].clone()
        logits[MASK_ID] = -torch.inf
        canvas.tokens[0, column] = logits.argmax()
    assert torch.equal(done.canvas.tokens, canvas.tokens)


@pytest.mark.parametrize(
    ("target", "certainty"),
    [("confidence", probability), ("margin", margin), ("neg_entropy", negative_entropy)],
)
@torch.no_grad()
def test_static_writes_the_most_certain_positions_first(target: str, certainty: Any) -> None:
    canvas = canvas_of([6], seed=3)
    sampler = SamplerConfig(name="static", steps=4, temperature=0.0, target=target)
    done = sample(POLICY, canvas, sampler, generators(1))
    probs = guided_logits(POLICY, canvas, canvas.response, 0.0).softmax(-1)
    first = certainty(probs, probs.argmax(-1)).topk(3).indices.sort().values
    assert (done.trace[0, -LENGTH:] == 0).nonzero().flatten().tolist() == first.tolist()


@torch.no_grad()
@pytest.mark.parametrize("threshold", [0.0, 0.3, 0.6])
def test_dynamic_writes_all_that_is_certain_enough_and_at_least_one(threshold: float) -> None:
    canvas = canvas_of([6, 2], seed=1)
    sampler = SamplerConfig(name="dynamic", steps=LENGTH, temperature=0.0, threshold=threshold)
    done = sample(POLICY, canvas, sampler, generators(2))
    best = guided_logits(POLICY, canvas, canvas.response, 0.0).softmax(-1).amax(-1).view(2, -1)
    for row in range(2):
        expected = best[row] >= threshold
        expected[best[row].argmax()] = True
        assert torch.equal(done.trace[row, -LENGTH:] == 0, expected)
    assert threshold > 0 or done.forwards == 1


def test_fork_draws_the_leftmost_token_where_none_is_certain_and_takes_what_is() -> None:
    canvas, steps = canvas_of([6, 2], seed=1), {"steps": LENGTH, "block_size": 6}
    sampler = SamplerConfig(name="fork", threshold=1.0, **steps)
    done = sample(POLICY, canvas, sampler, generators(2))
    in_order = sample(POLICY, canvas, SamplerConfig(name="left_to_right", **steps), generators(2))
    assert torch.equal(done.canvas.tokens, in_order.canvas.tokens)
    torch.testing.assert_close(done.logprobs, in_order.logprobs)
    assert done.drawn is not None and torch.equal(done.drawn, canvas.response)
    certain = sample(POLICY, canvas, replace(sampler, threshold=0.0), generators(2))
    assert certain.drawn is not None and not bool(certain.drawn.any())
    assert certain.forwards == 2 and bool((certain.logprobs == 0).all())
    greedy = SamplerConfig(name="dynamic", threshold=0.0, temperature=0.0, **steps)
    again = sample(POLICY, canvas, greedy, generators(2))
    assert torch.equal(certain.canvas.tokens, again.canvas.tokens)


def test_fork_draws_all_that_is_not_certain_when_its_steps_run_out() -> None:
    sampler = SamplerConfig(name="fork", steps=3, threshold=0.5)
    done = sample(POLICY, canvas_of([6] * 8), sampler, generators(8))
    assert done.drawn is not None
    last = done.trace == 2
    assert bool((last & done.drawn).any() and (last & ~done.drawn).any())
    assert torch.equal(done.drawn, done.logprobs < 0)
    for step in range(2):
        assert set((done.drawn & (done.trace == step)).sum(1).tolist()) <= {0, 1}


def test_dynamic_leaves_no_mask_when_its_steps_run_out() -> None:
    sampler = SamplerConfig(name="dynamic", steps=3, threshold=1.0)
    done = sample(POLICY, canvas_of([6, 2]), sampler, generators(2))
    counts = [(done.trace == step).sum(1).tolist() for step in range(3)]
    assert counts == [[1, 1], [1, 1], [10, 10]]


def test_the_mask_token_is_never_written_though_it_is_in_the_vocabulary() -> None:
    eager = bare_policy(small_network())
    with torch.no_grad():
        eager.network.head.weight[MASK_ID] *= 30
    canvas = canvas_of([3] * 16)
    for name in sorted(RULES):
        done = sample(eager, canvas, SamplerConfig(name=name, steps=4), generators(16))
        assert not bool((done.canvas.tokens[canvas.response] == MASK_ID).any())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"eos": "ignore"}, r"sampler\.eos is 'ignore'; allowed: free, last, leave"),
        ({"window": 8}, r"sampler\.window is 8.*Set sampler\.cache to prefix or dual"),
        ({"name": "dynamic", "threshold": 1.5}, r"sampler\.threshold is 1\.5.*from 0 to 1"),
    ],
)
def test_settings_that_mean_nothing_are_refused_by_name(changes: dict, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        SamplerConfig(**changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"block_size": 5}, r"s\.block_size is 5; it must be a divisor of the 12 response"),
        ({"block_size": 3, "steps": 3}, r"s\.steps is 3; it must be a multiple of the 4 blocks"),
        ({"name": "emerge", "eos": "last"}, r"eos is 'last'.*Only dynamic, static rank"),
        ({"name": "stattic"}, r"sampler\.name is 'stattic'.*Did you mean 'static'"),
    ],
)
def test_combinations_that_cannot_run_are_refused_without_a_model(
    changes: dict, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        check_sampler(SamplerConfig(**{"name": "static", "steps": 12, **changes}), "s", LENGTH)
