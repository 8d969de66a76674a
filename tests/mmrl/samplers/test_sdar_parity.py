"""SDAR's public sampler, token for token, from the same random numbers, with and without cache.

The public code draws a token at every position of a block, given ones too, and may write its mask
token, so these canvases allow it. Its blocks are counted from the first token of the prompt.
"""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file
from torch import Generator, Tensor

from mmrl.generation.masked.canvas import MaskedCanvas
from mmrl.generation.masked.samplers import RULES
from mmrl.generation.masked.samplers.confidence import most_certain, quota
from mmrl.generation.masked.samplers.rule import Prediction, State
from mmrl.generation.tokens.positions import Positions
from mmrl.models import load_model
from mmrl.models.network.pattern import count_blocks
from mmrl.samplers import SamplerConfig
from tests.mmrl.samplers.public_samplers import Proposal, propose_with
from tests.models.networks import FIXTURES, bare_policy

MASK, ROWS, WRITTEN, SIZE = 590, 600, 14, 4
OPTIONS = {
    "T1": {},
    "T0.7_k5_p0.9": {"temperature": 0.7, "top_k": 5, "top_p": 0.9},
    "steps3": {"steps": 12},
}
DYNAMIC = {"threshold": 0.3, "at_least": "quota", "filtered_confidence": True}
RULE_OF = {
    "sequential": ("left_to_right", {}),
    "low_confidence_static": ("static", {"filtered_confidence": True}),
    "low_confidence_dynamic": ("dynamic", DYNAMIC),
}


@pytest.fixture(scope="module")
def cases() -> dict[str, Tensor]:
    return load_file(FIXTURES / "sdar" / "cases.safetensors")


@pytest.fixture(scope="module")
def policy() -> SimpleNamespace:
    return bare_policy(load_model(FIXTURES / "sdar"))


class PublicDraws:
    """A rule that draws at all positions of a block, from one generator, and writes as another."""

    def __init__(self, name: str, blocks: Tensor) -> None:
        self.rule, self.blocks = RULES[name], blocks
        self.generator = Generator().manual_seed(0)

    def candidates(self, state: State, config: SamplerConfig) -> Tensor:
        return self.blocks == self.blocks[state.block.positions].max()

    def propose(
        self, state: State, where: Positions, prediction: Prediction, config: SamplerConfig
    ) -> Proposal:
        tokens = torch.multinomial(prediction.probs, 1, generator=self.generator)[:, 0]
        if config.name == "left_to_right":
            return tokens, where.take(self.rule.candidates(state, config))
        scores = prediction.own_probability(tokens)
        chosen = most_certain(state, where, scores, quota(state, config))
        if config.name == "dynamic":
            chosen = chosen | ((scores > config.threshold) & where.take(state.masked))
        return tokens, chosen


@pytest.mark.parametrize("cache", ["none", "prefix"])
@pytest.mark.parametrize("case", list(OPTIONS))
@pytest.mark.parametrize("strategy", list(RULE_OF))
def test_tokens_are_those_of_the_public_code(
    strategy: str,
    case: str,
    cache: str,
    cases: dict[str, Tensor],
    policy: SimpleNamespace,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(MaskedCanvas, "forbidden_columns", property(lambda _: []))
    prompt = cases["inputs/prompt"]
    tokens = torch.cat((prompt, torch.full((1, WRITTEN), MASK)), 1)
    everywhere = torch.ones_like(tokens, dtype=torch.bool)
    response = torch.arange(tokens.shape[1])[None] >= prompt.shape[1]
    blocks = count_blocks(everywhere, SIZE, 0)
    canvas = MaskedCanvas(tokens, response, None, (0, ROWS), MASK, blocks=blocks, block_size=SIZE)
    name, own = RULE_OF[strategy]
    config = replace(SamplerConfig(name=name, cache=cache, **own), **{"steps": 16, **OPTIONS[case]})
    draws = PublicDraws(name, blocks)
    done = propose_with(policy, canvas, config, draws.propose, draws.candidates)
    assert done.canvas.tokens.tolist() == cases[f"outputs/generate/{strategy}/{case}"].tolist()


@torch.no_grad()
def test_logits_are_those_of_the_public_code(
    cases: dict[str, Tensor], policy: SimpleNamespace
) -> None:
    ids, public = cases["inputs/input_ids"], cases["outputs/float32/block_causal"]
    model = policy.model
    everywhere = torch.ones(1, 1, 16, 16, dtype=torch.bool)
    full = model(input_ids=ids, attention_mask=everywhere).logits
    found = model(input_ids=ids).logits
    torch.testing.assert_close(found, public, atol=2e-5, rtol=0)
    torch.testing.assert_close(full, cases["outputs/float32/nomask"], atol=2e-5, rtol=0)
    cache = model.new_cache(16)
    model(input_ids=ids[:, :8], cache=cache.at(0, 8, 8))
    third = model(input_ids=ids[:, 8:12], cache=cache.at(8, 12, 12)).logits
    torch.testing.assert_close(third, cases["outputs/float32/cached_block3"], atol=2e-5, rtol=0)
