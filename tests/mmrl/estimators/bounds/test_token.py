"""token: what was scored, entry by entry."""

import torch

from mmrl.estimators import BOUNDS
from mmrl.types import Passes

LOGPROBS = torch.tensor([[[-1.0, -2.0, 0.0], [0.0, -4.0, -8.0]], [[0.0, -3.0, -5.0], [-6.0, 0, 0]]])
SCORED = LOGPROBS < 0


def test_token_keeps_every_scored_token_of_every_pass() -> None:
    quantity = BOUNDS["token"](LOGPROBS, Passes(SCORED, SCORED, SCORED.float()))
    assert torch.equal(quantity.values, LOGPROBS)
    assert torch.equal(quantity.counts, SCORED)
    assert quantity.sizes is None and quantity.linear is None
