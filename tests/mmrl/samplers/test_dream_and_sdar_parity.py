"""Dream's public sampler, token for token, from the same random numbers.

The public code may write its mask token, so these canvases allow it. Drawn are a uniform for each
open position (origin), then the tokens, then the positions (alg_temp), in this order.
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
from mmrl.generation.masked.samplers.dream import write_counts, write_share
from mmrl.generation.masked.samplers.rule import Prediction, State
from mmrl.generation.tokens.positions import Positions
from mmrl.models import load_model
from mmrl.models.network.pattern import count_blocks
from mmrl.samplers import SamplerConfig
from tests.mmrl.samplers.public_samplers import Proposal, propose_with
from tests.models.networks import FIXTURES, bare_policy

MASK, ROWS, WRITTEN, STEPS = 590, 600, 12, 5
CASES_OF = "dream"


@pytest.fixture(scope="module")
def policy() -> SimpleNamespace:
    return bare_policy(load_model(FIXTURES / "dream"))


class PublicDraws:
    """Candidates and proposals from one generator."""

    def __init__(self) -> None:
        self.generator = Generator().manual_seed(0)

    def candidates(self, state: State, config: SamplerConfig) -> Tensor:
        if config.name != "origin":
            return state.masked
        drawn = torch.rand(int(state.masked.sum()), generator=self.generator)
        chosen = state.masked.clone()
        chosen[state.masked] = drawn < write_share(state, config)
        return chosen

    def propose(
        self, state: State, where: Positions, prediction: Prediction, config: SamplerConfig
    ) -> Proposal:
        tokens = prediction.logits.argmax(-1)
        if config.temperature:
            tokens = torch.multinomial(prediction.probs, 1, True, generator=self.generator)[:, 0]
        score = RULES[config.name].score
        if score is None:
            return tokens, torch.ones_like(tokens, dtype=torch.bool)
        count = int(write_counts(state, config))
        full = torch.full(where.where.shape, -torch.inf)
        full[where.where] = score(prediction, tokens)
        if config.alg_temp and count:
            weights = torch.softmax(full / config.alg_temp, -1)
            best = torch.multinomial(weights, count, generator=self.generator)
        else:
            best = full.topk(count, dim=-1).indices
        return tokens, where.take(torch.zeros_like(where.where).scatter_(1, best, True))


@pytest.mark.parametrize("name", ["origin", "maskgit_plus", "topk_margin", "entropy"])
@pytest.mark.parametrize("case", ["T0.0/atNone", "T0.0/at0.5", "T1.0/atNone"])
def test_tokens_are_those_of_the_public_code(
    name: str,
    case: str,
    cases: dict[str, Tensor],
    policy: SimpleNamespace,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(MaskedCanvas, "forbidden_columns", property(lambda _: []))
    prompt = cases["prompt"]
    tokens = torch.cat((prompt, torch.full((1, WRITTEN), MASK)), 1)
    response = torch.arange(tokens.shape[1])[None] >= prompt.shape[1]
    temperature, drawn = case.removeprefix("T").split("/at")
    options = {} if drawn == "None" or name == "origin" else {"alg_temp": float(drawn)}
    config = SamplerConfig(name=name, steps=STEPS, temperature=float(temperature), **options)
    canvas = MaskedCanvas(tokens, response, None, (0, ROWS), MASK)
    draws = PublicDraws()
    done = propose_with(policy, canvas, config, draws.propose, draws.candidates)
    assert done.canvas.tokens.tolist() == cases[f"sample/{name}/{case}"].tolist()


@torch.no_grad()
def test_logits_are_those_of_the_public_code_one_position_on(
    cases: dict[str, Tensor], policy: SimpleNamespace
) -> None:
    ids, mask = cases["input_ids"], cases["attention_mask"]
    public = cases["float32/full"]
    shifted = torch.cat((public[:, :1], public[:, :-1]), 1)
    logits = policy.model(input_ids=ids).logits
    torch.testing.assert_close(logits, shifted, atol=2e-5, rtol=0)
    wanted = torch.rand(ids.shape, generator=Generator().manual_seed(1)) < 0.4
    wanted[:, 0] = True
    some = policy.model(input_ids=ids, positions=wanted, columns=(7, 400)).logits
    torch.testing.assert_close(some, shifted[wanted][:, 7:400], atol=2e-5, rtol=0)
    padded, public = policy.model(input_ids=ids, attention_mask=mask).logits, cases["padded"]
    for row, (keep, logits) in enumerate(zip(mask.bool(), padded, strict=True)):
        first = int(keep.nonzero()[0])
        expected = public[row, first:-1]
        torch.testing.assert_close(logits[first + 1 :], expected, atol=2e-5, rtol=0)
        alone = policy.model(input_ids=ids[row : row + 1, keep]).logits[0]
        torch.testing.assert_close(logits[keep], alone, atol=2e-5, rtol=0)


OPEN, SIZE = 14, 4
OPTIONS = {"T1": {}, "T0.7_k5_p0.9": {"temperature": 0.7, "top_k": 5, "top_p": 0.9}}
OPTIONS |= {"steps3": {"steps": 12}}
DYNAMIC = {"threshold": 0.3, "at_least": "quota", "filtered_confidence": True}
RULE_OF = {
    "sequential": ("left_to_right", {}),
    "low_confidence_static": ("static", {"filtered_confidence": True}),
    "low_confidence_dynamic": ("dynamic", DYNAMIC),
}


@pytest.fixture(scope="module")
def sdar_cases() -> dict[str, Tensor]:
    return load_file(FIXTURES / "sdar" / "cases.safetensors")


@pytest.fixture(scope="module")
def sdar() -> SimpleNamespace:
    return bare_policy(load_model(FIXTURES / "sdar"))


class BlockDraws:
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
def test_tokens_of_sdar_are_those_of_the_public_code(
    strategy: str,
    case: str,
    cache: str,
    sdar_cases: dict[str, Tensor],
    sdar: SimpleNamespace,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(MaskedCanvas, "forbidden_columns", property(lambda _: []))
    prompt = sdar_cases["inputs/prompt"]
    tokens = torch.cat((prompt, torch.full((1, OPEN), MASK)), 1)
    everywhere = torch.ones_like(tokens, dtype=torch.bool)
    response = torch.arange(tokens.shape[1])[None] >= prompt.shape[1]
    blocks = count_blocks(everywhere, SIZE, 0)
    canvas = MaskedCanvas(tokens, response, None, (0, ROWS), MASK, blocks=blocks, block_size=SIZE)
    name, own = RULE_OF[strategy]
    config = replace(SamplerConfig(name=name, cache=cache, **own), **{"steps": 16, **OPTIONS[case]})
    draws = BlockDraws(name, blocks)
    done = propose_with(sdar, canvas, config, draws.propose, draws.candidates)
    assert done.canvas.tokens.tolist() == sdar_cases[f"outputs/generate/{strategy}/{case}"].tolist()


@torch.no_grad()
def test_logits_of_sdar_are_those_of_the_public_code(
    sdar_cases: dict[str, Tensor], sdar: SimpleNamespace
) -> None:
    ids, public = sdar_cases["inputs/input_ids"], sdar_cases["outputs/float32/block_causal"]
    model = sdar.model
    everywhere = torch.ones(1, 1, 16, 16, dtype=torch.bool)
    full = model(input_ids=ids, attention_mask=everywhere).logits
    found = model(input_ids=ids).logits
    torch.testing.assert_close(found, public, atol=2e-5, rtol=0)
    torch.testing.assert_close(full, sdar_cases["outputs/float32/nomask"], atol=2e-5, rtol=0)
    cache = model.new_cache(16)
    model(input_ids=ids[:, :8], cache=cache.at(0, 8, 8))
    public = sdar_cases["outputs/float32/cached_block3"]
    third = model(input_ids=ids[:, 8:12], cache=cache.at(8, 12, 12)).logits
    torch.testing.assert_close(third, public, atol=2e-5, rtol=0)
