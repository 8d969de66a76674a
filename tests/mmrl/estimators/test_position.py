"""The position term: Plackett-Luce by hand, as probabilities, and through the scorer."""

import itertools
import math

import pytest
import torch

from mmrl.estimators import MASKS, score
from mmrl.estimators.masks.trace import TraceConfig
from mmrl.estimators.scoring import plackett_luce
from mmrl.samplers import SamplerConfig, sample
from tests.mmrl.canvases import generators, small_canvas
from tests.models.networks import bare_policy, small_network

CONFIDENCE = torch.tensor([[0.5, 0.9, 0.2, 0.7]]).log()
ALL = torch.ones(1, 4, dtype=torch.bool)


def test_each_factor_is_a_share_of_what_was_still_open() -> None:
    order = torch.tensor([[2, 0, 3, 1]])  # position 1 first, then 3, 0, 2
    factors = plackett_luce(CONFIDENCE, ALL, order, None)[0].exp().tolist()
    expected = [0.5 / 0.7, 0.9 / 2.3, 1.0, 0.7 / 1.4]
    assert factors == pytest.approx(expected, rel=1e-5)


def test_over_all_orders_the_probabilities_add_up_to_one() -> None:
    total = 0.0
    for order in itertools.permutations(range(4)):
        factors = plackett_luce(CONFIDENCE, ALL, torch.tensor([order]), None)
        total += math.exp(float(factors.sum()))
    assert total == pytest.approx(1.0, rel=1e-5)


def test_positions_compete_within_their_block_and_only_while_hidden() -> None:
    order, blocks = torch.tensor([[0, 1, 2, 3]]), torch.tensor([[0, 0, 1, 1]])
    factors = plackett_luce(CONFIDENCE, ALL, order, blocks)[0].exp().tolist()
    assert factors == pytest.approx([0.5 / 1.4, 1.0, 0.2 / 0.9, 1.0], rel=1e-5)
    hidden = torch.tensor([[False, True, True, False]])
    factors = plackett_luce(CONFIDENCE, hidden, order, None)[0].tolist()
    assert factors == pytest.approx([0.0, math.log(0.9 / 1.1), 0.0, 0.0], abs=1e-6)


def test_it_is_added_to_the_log_prob_of_the_token_with_its_gradient() -> None:
    policy = bare_policy(small_network())
    done = sample(policy, small_canvas(2, 5), SamplerConfig(steps=3), generators(2))
    plain = MASKS["trace"](done, TraceConfig(), [])
    ordered = MASKS["trace"](done, TraceConfig(position_term="plackett_luce"), [])
    without, *_ = score(policy, done.canvas, plain)
    with_term, *_ = score(policy, done.canvas, ordered)
    difference = (with_term - without).detach()
    assert ordered.order is not None and bool((difference[~ordered.scored] == 0).all())
    for k, row in itertools.product(range(len(ordered)), range(2)):
        tokens = done.canvas.tokens[row].masked_fill(ordered.hidden[k, row], 39)
        logits = policy.model(input_ids=tokens[None]).logits[0, :, 12:36]
        confidence = logits.log_softmax(-1).amax(-1).detach()
        open_now = ordered.hidden[k, row] & done.canvas.response[row]
        ranked = open_now.nonzero().flatten().tolist()
        ranked = sorted(ranked, key=lambda place: int(ordered.order[row, place]))
        for n, place in enumerate(ranked):
            if ordered.scored[k, row, place]:
                rest = torch.logsumexp(confidence[ranked[n:]], 0)
                expected = float(confidence[place] - rest)
                assert float(difference[k, row, place]) == pytest.approx(expected, abs=1e-4)
    with_term.sum().backward()
    assert any(
        float(p.grad.abs().sum()) > 0 for p in policy.model.parameters() if p.grad is not None
    )
