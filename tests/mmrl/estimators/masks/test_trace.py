"""trace: the public code's rows, its shrinking, and the log-probs the sampler recorded."""

import itertools
from typing import Any

import pytest
import torch

from mmrl.algorithms.bounds import BOUNDS
from mmrl.estimators import score
from mmrl.generation.masked.canvas import MaskedCanvas
from mmrl.generation.masked.strategies import STRATEGIES
from mmrl.generation.masked.strategies.trace import SliceConfig, slice_ids
from mmrl.samplers import SamplerConfig, sample
from mmrl.types import Passes, Rollout
from tests.mmrl.canvases import generators, small_canvas
from tests.mmrl.estimators.exact import drawn, looked_up, table
from tests.mmrl.text_canvases import canvas_of, wants_to_end
from tests.models.networks import bare_policy, small_network


def trace(rollout: Rollout, **options: Any) -> Passes:
    return STRATEGIES["trace"](rollout, SliceConfig(**options), generators(len(rollout)))


def rollout(steps: list[int], counted: int | None = None) -> Rollout:
    """One text without a prompt, written in these steps; the first `counted` tokens count."""
    order = torch.tensor([steps])
    everywhere = torch.ones_like(order, dtype=torch.bool)
    valid = None if counted is None else torch.arange(len(steps))[None] < counted
    canvas = MaskedCanvas(torch.full_like(order, 20), everywhere, None, (12, 36), 39, valid=valid)
    return Rollout(canvas, order, torch.zeros(1, len(steps)), {})


def shown(passes: Passes) -> list[tuple[str, str]]:
    """(what is hidden, what is scored) of each pass."""
    return [
        ("".join(".#"[h] for h in hidden.tolist()), "".join(".x"[s] for s in scored.tolist()))
        for hidden, scored in zip(passes.query.mask[:, 0], passes.scored[:, 0], strict=True)
    ]


@pytest.mark.parametrize(
    ("size", "expected"), [(2, [1, 3, 1, 3, 7, 3, 3, 7]), (3, [2, 7, 2, 7, 7, 2, 2, 7])]
)
def test_slices_are_those_of_the_public_code(size: int, expected: list[int]) -> None:
    order = torch.tensor([[0, 3, 1, 3, 4, 2, 2, 7]])
    ids = slice_ids(order, SliceConfig(slice_size=size))[0]
    # there a slice is named by its last step
    last = [int(order[0, ids == i].max()) for i in ids.tolist()]
    assert last == expected


def test_the_rows_of_a_short_text_are_those_of_the_public_code() -> None:
    passes = trace(rollout([0, 2, 1, 1, 2, 3, 3, 3], counted=6))
    assert shown(passes) == [
        ("########", "x......."),
        (".#######", "..xx...."),
        (".#..####", ".x..x..."),
        (".....###", ".....x.."),
    ]


def test_cuts_divide_the_recorded_steps_evenly() -> None:
    order = torch.tensor([[0, 2, 4, 6, 8, 10, 12]])
    ids = slice_ids(order, SliceConfig(num_slices=3))[0].tolist()
    assert ids == [0, 0, 0, 1, 1, 2, 2]
    assert slice_ids(order, SliceConfig(num_slices=20))[0].tolist() == list(range(7))


def test_slices_cover_every_position_that_counts_once() -> None:
    for options in ({"slice_size": 2}, {"num_slices": 3}):
        passes = trace(rollout([5, 0, 3, 3, 1, 4, 4], counted=6), **options)
        assert passes.scored.sum(0)[0].tolist() == [1, 1, 1, 1, 1, 1, 0]


def test_a_given_position_is_neither_hidden_nor_scored() -> None:
    passes = trace(rollout([-1, 0, 1]))
    assert shown(passes) == [(".##", ".x."), ("..#", "..x")]


@torch.no_grad()
@pytest.mark.parametrize("name", ["emerge", "maskgit"])
@pytest.mark.parametrize("padding", [False, True])
def test_replaying_the_trace_gives_the_samplers_own_log_probs(name: str, padding: bool) -> None:
    policy = bare_policy(small_network())
    config = SamplerConfig(name=name, steps=5)
    done = sample(policy, small_canvas(6, 12, padding=padding), config, generators(6))
    passes = trace(done)
    logprobs, *_ = score(policy, done.canvas, passes)
    torch.testing.assert_close(logprobs.sum(0), done.logprobs, atol=1e-5, rtol=0)
    whole = BOUNDS["elbo"](logprobs, passes).values.flatten()
    torch.testing.assert_close(whole, done.logprobs.sum(-1), atol=1e-4, rtol=0)


@torch.no_grad()
@pytest.mark.parametrize(
    ("name", "eos"),
    [
        *itertools.product(["static", "dynamic"], ["free", "last", "stop", "leave"]),
        *itertools.product(["left_to_right", "emerge"], ["free", "stop", "leave"]),
    ],
)
def test_replaying_a_text_gives_the_samplers_log_probs_up_to_its_end(name: str, eos: Any) -> None:
    policy = wants_to_end()
    own = {"threshold": 0.2} if name == "dynamic" else {}
    config = SamplerConfig(name=name, steps=6, block_size=4, eos=eos, **own)
    done = sample(policy, canvas_of([3, 5, 4, 2]), config, generators(4))
    counted = done.canvas.counted
    assert 4 < int(counted.sum()) < int(done.canvas.response.sum())
    logprobs, *_ = score(policy, done.canvas, trace(done))
    torch.testing.assert_close(logprobs.sum(0), done.logprobs * counted, atol=1e-5, rtol=0)


N = 4
EXACT = [0b1111 << i & 0b1111 for i in range(N)]


def chain() -> float:
    """sum_i log p(y_i | x, y_<i)."""
    return sum(float(table(N)[hidden][i]) for i, hidden in enumerate(EXACT))


def test_the_sum_over_passes_is_the_exact_log_likelihood() -> None:
    passes = drawn("left_to_right", N, 1)
    assert len(passes) == N
    value = BOUNDS["elbo"](looked_up(passes, N), passes).values
    torch.testing.assert_close(value.flatten(), torch.tensor([chain()]))


def test_each_pass_hides_its_position_and_all_behind_it() -> None:
    passes = drawn("left_to_right", N, 1)
    for i in range(N):
        assert passes.query.mask[i, 0, 4:8].tolist() == [j >= i for j in range(N)]
        assert passes.scored[i, 0, 4:8].tolist() == [j == i for j in range(N)]


def test_positions_from_left_to_right_can_share_a_pass() -> None:
    passes = drawn("left_to_right", N, 1, slice_size=3)
    assert passes.scored[:, 0, 4:8].tolist() == [[True] * 3 + [False], [False] * 3 + [True]]
