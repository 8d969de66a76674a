"""Emerge draws "stay masked" before the token; the distribution is that of the joint draw.

At a size where every way of writing a canvas can be listed, the probability of each finished canvas
together with the steps it was written at is computed exactly from the joint draw over
[p (a_t - a_s) / a_t, a_s / a_t], and compared with frequencies.
"""

import itertools
from collections import Counter

import pytest
import torch
from scipy.stats import chisquare
from torch import Generator, Tensor

from mmrl.generation.masked.canvas import MaskedCanvas
from mmrl.generation.masked.samplers.scheduled import alpha
from mmrl.generation.tokens.noise import Draws, row_seeds
from mmrl.generation.tokens.positions import Positions
from mmrl.samplers import SamplerConfig, sample
from tests.mmrl.canvases import guided_logits
from tests.mmrl.samplers.public_samplers import sample_publicly
from tests.models.networks import bare_policy, small_network

CODES, STEPS, ROWS, FIRST, MASK_ID = 3, 3, 8000, 12, 39
POLICY = bare_policy(small_network(4))
Trace = tuple[tuple[int, int], ...]
"""(code, step) of each position; (-1, -1) while it is masked."""


def tiny_canvas(rows: int) -> MaskedCanvas:
    tokens = torch.tensor([[3, 7, MASK_ID, MASK_ID, 5]]).expand(rows, -1).clone()
    return MaskedCanvas(tokens, tokens == MASK_ID, None, (FIRST, FIRST + CODES), MASK_ID)


def predictions(trace: Trace) -> torch.Tensor:
    """[2, CODES] probabilities at both positions, given what a trace has written."""
    canvas = tiny_canvas(1)
    where = canvas.response
    codes = torch.tensor([code for code, _ in trace])
    written = torch.where(codes >= 0, codes + FIRST, MASK_ID)
    canvas.tokens[where] = written
    with torch.no_grad():
        return guided_logits(POLICY, canvas, where, 0.0).double().softmax(-1)


def exact() -> dict[Trace, float]:
    """Probability of every finished trace under the joint draw."""
    traces: dict[Trace, float] = {((-1, -1), (-1, -1)): 1.0}
    for step in range(STEPS):
        following: Counter[Trace] = Counter()
        now, then = float(alpha("cosine", step, STEPS)), float(alpha("cosine", step + 1, STEPS))
        stay = 0.0 if step == STEPS - 1 else then / now
        for trace, chance in traces.items():
            probs = predictions(trace)
            options = [
                {(code, at): 1.0}
                if code >= 0
                else {
                    (-1, -1): stay,
                    **{(c, step): (1 - stay) * float(probs[place, c]) for c in range(CODES)},
                }
                for place, (code, at) in enumerate(trace)
            ]
            for one, two in itertools.product(*(option.items() for option in options)):
                following[one[0], two[0]] += chance * one[1] * two[1]
        traces = {trace: chance for trace, chance in following.items() if chance > 0}
    return traces


@pytest.mark.parametrize("public", [False, True])
def test_finished_canvases_and_their_traces_have_the_joint_distribution(public: bool) -> None:
    config, canvas = SamplerConfig(name="emerge", steps=STEPS), tiny_canvas(ROWS)
    if public:
        done = sample_publicly(POLICY, canvas, config, seed=11)
    else:
        done = sample(POLICY, canvas, config, Generator().manual_seed(11))
    codes = (done.canvas.tokens[:, 2:4] - FIRST).tolist()
    steps = done.trace[:, 2:4].tolist()
    found = Counter(tuple(zip(c, s, strict=True)) for c, s in zip(codes, steps, strict=True))
    chances = exact()
    assert abs(sum(chances.values()) - 1) < 1e-9 and found.keys() <= chances.keys()
    common = [trace for trace, chance in chances.items() if chance * ROWS >= 5]
    observed = [found[trace] for trace in common]
    expected = [chances[trace] * ROWS for trace in common]
    rest = ROWS - sum(observed), ROWS - sum(expected)
    assert len(common) > 30
    assert chisquare([*observed, rest[0]], [*expected, rest[1]]).pvalue > 0.01


def test_uniforms_of_a_row_depend_on_its_seed_the_step_and_the_purpose_only() -> None:
    response = torch.zeros(3, 8, dtype=torch.bool)
    response[:, 2:6] = True
    seeds = row_seeds([Generator().manual_seed(i) for i in range(3)], 3)

    def draw(rows: slice, step: int, purpose: str, ahead: int = 1) -> Tensor:
        draws = Draws(seeds[rows], Positions.find(response[rows]), range(2, 9))
        draws.ahead = ahead
        return draws(step, purpose)

    every = draw(slice(3), 4, "token")
    assert bool((every[~response] == 0).all()) and bool((every[response] > 0).all())
    assert torch.equal(draw(slice(1, 2), 4, "token"), every[1:2])
    assert torch.equal(draw(slice(3), 4, "token", ahead=100), every)
    for other in ((5, "token"), (4, "stay")):
        assert not bool((draw(slice(3), *other) == every)[response].any())


def test_draws_ahead_are_those_of_each_step() -> None:
    where = Positions.find(torch.rand(4, 9, generator=Generator().manual_seed(0)) < 0.5)
    one, ahead = (Draws([1, 2, 3, 4], where, range(7)) for _ in range(2))
    ahead.ahead = 3
    for step in (0, 1, 2, 3, 6, 5):
        assert torch.equal(one(step, "token"), ahead(step, "token"))
