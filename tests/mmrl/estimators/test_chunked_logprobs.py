"""Log-probs for some rows of logits at a time equal those of all rows at once."""

from typing import Any

import pytest
import torch
from torch import Tensor

from mmrl.estimators import score
from mmrl.generation.masked.hidden import Hidden
from mmrl.generation.tokens.scoring.chunked_logprobs import LogProbReduction
from mmrl.models.network.token_network import OutputHead
from mmrl.runtime import logits_budget
from mmrl.types import Passes
from mmrl.types.guidance import Guidance
from tests.mmrl.canvases import VOCAB, small_canvas
from tests.models.networks import bare_policy, small_network

ROWS, COLUMNS, WIDTH = 7, 11, 5
TARGETS = torch.tensor([0, 3, 10, 4, 4, 7, 1])


@pytest.fixture(autouse=True)
def small_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three rows of float64 at a time."""
    monkeypatch.setattr(logits_budget, "LOGITS_BUDGET", 3 * COLUMNS * 8)


def tensors(branches: int, trained: bool, bias: bool) -> list[Any]:
    draw = torch.Generator().manual_seed(branches)

    def random(*shape: int, wanted: bool = True) -> Tensor:
        return torch.randn(*shape, dtype=torch.float64, generator=draw).requires_grad_(wanted)

    x, weight = random(branches * ROWS, WIDTH), random(COLUMNS, WIDTH, wanted=trained)
    return [x, weight, random(COLUMNS, wanted=trained) if bias else None]


def whole(what: LogProbReduction, guidance: Guidance, x: Tensor, weight: Tensor, bias: Any) -> Any:
    """The same from all logits at once."""
    logits = OutputHead(weight, bias)(x).chunk(guidance.branches)
    combined = guidance.combine(logits) / what.temperature
    hidden = torch.zeros(COLUMNS, dtype=torch.bool)
    hidden[list(what.forbidden_columns)] = True
    logp = combined.masked_fill(hidden, -torch.inf).log_softmax(-1)
    found = logp.gather(-1, what.targets[:, None])[:, 0]
    return found, torch.special.entr(logp.exp()).sum(-1)


@pytest.mark.parametrize("guidance", [Guidance(), Guidance(2.0), Guidance(1.5, 0.5)])
@pytest.mark.parametrize("trained", [False, True])
def test_chunks_change_neither_numbers_nor_gradients(guidance: Guidance, trained: bool) -> None:
    what = LogProbReduction(TARGETS, guidance.factors, temperature=0.7, forbidden_columns=(6, 9))
    x, weight, bias = tensors(guidance.branches, trained, bias=True)
    found = what(x, OutputHead(weight, bias))
    expected = whole(what, guidance, x, weight, bias)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other.detach().requires_grad_(one.requires_grad))
    inputs = [x, weight, bias] if trained else [x]
    scale = torch.linspace(-1, 2, ROWS, dtype=torch.float64)
    gradients = [
        torch.autograd.grad((chosen * scale).sum(), inputs) for chosen, _ in (found, expected)
    ]
    torch.testing.assert_close(*gradients)


def test_no_logits_above_the_budget_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    seen, what = [], LogProbReduction(TARGETS)
    x, weight, _ = tensors(1, True, bias=False)
    compute = LogProbReduction.log_softmax

    def counted(*inputs: Any) -> Tensor:
        seen.append(compute(*inputs))
        return seen[-1]

    monkeypatch.setattr(LogProbReduction, "log_softmax", counted)
    what(x, OutputHead(weight)).target.sum().backward()
    assert [len(each) for each in seen] == [3, 3, 1] * 2  # forward, and again backward


@pytest.mark.parametrize("cfg_scale", [0.0, 2.0])
def test_scores_are_the_same_in_chunks(cfg_scale: float, monkeypatch: pytest.MonkeyPatch) -> None:
    network = small_network(2).double()
    network.requires_grad_(False)
    network.blocks[0].attn.q.weight.requires_grad_()
    canvas = small_canvas(3, given=True)
    draw = torch.Generator().manual_seed(0)
    canvas.tokens[canvas.masked] = torch.randint(*VOCAB, (15,), generator=draw)
    hidden = canvas.response.expand(2, -1, -1) & (torch.rand(2, 3, 11, generator=draw) < 0.8)
    passes = Passes(Hidden(hidden), hidden & (torch.rand(2, 3, 11) < 0.7), hidden.float())
    found = []
    for budget in (logits_budget.LOGITS_BUDGET, 2**30):
        monkeypatch.setattr(logits_budget, "LOGITS_BUDGET", budget)
        scores = score(bare_policy(network), canvas, passes, cfg_scale, temperature=0.9)
        scores.logprobs.sum().backward()
        found.append((*scores[:2], network.blocks[0].attn.q.weight.grad))
        network.zero_grad(set_to_none=True)
    torch.testing.assert_close(*found)
