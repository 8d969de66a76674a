"""Sampling and scoring of causal models, against transformers' `generate` and plain forwards."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from mmrl.algorithms import AlgorithmConfig
from mmrl.config import ConfigError
from mmrl.estimators import draw_passes, score
from mmrl.generation.causal.canvas import CausalCanvas
from mmrl.generation.causal.sampler import draw, find_held
from mmrl.generation.masked.canvas import MaskedCanvas
from mmrl.models import load_model
from mmrl.models.families import public_names, sdar
from mmrl.models.network.core import MaskedTokenModel
from mmrl.runtime.logits_budget import LOGITS_BUDGET
from mmrl.samplers import SamplerConfig, sample
from mmrl.types import Rollout
from tests.device_counts import LargestLogits
from tests.mmrl.canvases import generators
from tests.models.causal import write_causal
from tests.models.networks import bare_policy

PROMPTS = [[7, 11, 5, 9, 30], [3, 8, 12], [7, 11, 5, 9, 30], [14]]
LENGTH, END = 12, 2


def canvas_of(prompts: list[list[int]] = PROMPTS, length: int = LENGTH) -> CausalCanvas:
    width = max(map(len, prompts))
    tokens = torch.tensor([[0] * (width - len(row)) + row + [0] * length for row in prompts])
    columns = torch.arange(width + length).expand_as(tokens)
    attend = columns >= torch.tensor([[width - len(row)] for row in prompts])
    keep = None if bool(attend.all()) else attend
    return CausalCanvas(tokens, columns >= width, keep, (0, 41), stop_ids=(END,))


@pytest.fixture(scope="module", params=["qwen3", "llama", "gemma3"])
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A policy, and transformers' model of the same weights."""
    folder = tmp_path_factory.mktemp(request.param)
    model = write_causal(folder, request.param)
    return bare_policy(load_model(folder)), model


def rows_of(rollout: Rollout) -> list[list[int]]:
    """The responses, each up to its end."""
    canvas = rollout.canvas
    return [row[keep].tolist() for row, keep in zip(canvas.tokens, canvas.counted, strict=True)]


def generated(model: Any, canvas: CausalCanvas, **options: Any) -> list[list[int]]:
    first = canvas.first_column
    mask = torch.ones_like(canvas.response) if canvas.attend is None else canvas.attend
    found = model.generate(
        canvas.tokens[:, :first],
        attention_mask=mask[:, :first].long(),
        max_new_tokens=LENGTH,
        eos_token_id=END,
        pad_token_id=0,
        do_sample=False,
        **options,
    )[:, first:].tolist()
    return [row[: row.index(END) + 1] if END in row else row for row in found]


@pytest.mark.parametrize("penalty", [1.0, 1.3])
def test_greedy_tokens_are_those_of_transformers_alone_and_in_a_batch(
    pair: Any, penalty: float
) -> None:
    policy, model = pair
    config = SamplerConfig(name="autoregressive", temperature=0.0, repetition_penalty=penalty)
    together = rows_of(sample(policy, canvas_of(), config, generators(4)))
    for prompt, row in zip(PROMPTS, together, strict=True):
        alone = canvas_of([prompt])
        assert generated(model, alone, repetition_penalty=penalty) == [row]
        assert rows_of(sample(policy, alone, config, generators(1))) == [row]


def plain_logprobs(model: Any, canvas: CausalCanvas) -> Tensor:
    """[B, L] of each token under transformers' own forward pass of its row alone."""
    found = torch.zeros(canvas.tokens.shape)
    for n, tokens in enumerate(canvas.tokens):
        first = 0 if canvas.attend is None else int(canvas.attend[n].int().argmax())
        with torch.no_grad():
            logp = model(tokens[None, first:]).logits[0].log_softmax(-1)
        found[n, first + 1 :] = logp[:-1].gather(1, tokens[first + 1 :, None])[:, 0]
    return found * canvas.counted


def test_log_probs_are_those_of_a_plain_forward_and_replaying_gives_the_samplers_own(
    pair: Any,
) -> None:
    policy, model = pair
    config = SamplerConfig(name="autoregressive", temperature=0.7)
    rollout = sample(policy, canvas_of(PROMPTS * 2), config, generators(8))
    passes = draw_passes(rollout, AlgorithmConfig(strategy="causal"), generators(8))
    with torch.no_grad():
        found = score(policy, rollout.canvas, passes, temperature=0.7)
        raw = score(policy, rollout.canvas, passes)
    torch.testing.assert_close(found.logprobs[0], rollout.logprobs, atol=1e-5, rtol=0)
    plain = plain_logprobs(model, rollout.canvas)
    torch.testing.assert_close(raw.logprobs[0], plain, atol=1e-5, rtol=0)
    assert (rollout.logprobs - plain).abs().max() > 0.1


def test_a_row_draws_the_same_whatever_is_beside_it_and_leaves_when_it_ends(pair: Any) -> None:
    policy, _ = pair
    config = SamplerConfig(name="autoregressive", temperature=4.0)
    open_ = canvas_of(PROMPTS * 4, 60)
    endless = sample(policy, replace(open_, stop_ids=()), config, generators(16)).canvas
    written = endless.tokens[endless.response].view(16, -1)
    used = [int((written == token).any(1).sum()) for token in range(41)]
    half = min(range(41), key=lambda token: abs(used[token] - 8))
    long = replace(open_, stop_ids=(half,))
    together = sample(policy, long, config, generators(16))
    lengths = together.canvas.counted.sum(1)
    assert int(lengths.min()) < 50 and len(set(lengths.tolist())) > 3, "rows end at many places"
    for row in range(0, 16, 5):
        alone = sample(policy, long[row : row + 1], config, generators(16)[row : row + 1])
        assert rows_of(alone)[0] == rows_of(together)[row]
    assert bool((together.trace[~together.canvas.counted] == -1).all())
    assert bool((together.logprobs[together.trace < 0] == 0).all())


def test_tokens_are_drawn_from_the_distribution_that_transformers_warps() -> None:
    from transformers import (
        LogitsProcessorList,
        MinPLogitsWarper,
        RepetitionPenaltyLogitsProcessor,
        TemperatureLogitsWarper,
        TopKLogitsWarper,
        TopPLogitsWarper,
    )

    logits = torch.randn(3, 41, generator=torch.Generator().manual_seed(1)) * 2
    canvas = canvas_of([[3, 8, 12]] * 3)
    warpers = LogitsProcessorList(
        [RepetitionPenaltyLogitsProcessor(1.4), TemperatureLogitsWarper(0.8), TopKLogitsWarper(20)]
        + [TopPLogitsWarper(0.9), MinPLogitsWarper(0.05)]
    )
    expected = warpers(canvas.tokens[:, :3], logits.clone()).softmax(-1)
    filters = {"temperature": 0.8, "top_k": 20, "top_p": 0.9, "min_p": 0.05}
    config = SamplerConfig(name="autoregressive", repetition_penalty=1.4, **filters)
    held, points = find_held(canvas, 3), (torch.arange(4000) + 0.5) / 4000
    for row in range(3):
        columns, logprobs = draw(
            logits[row].expand(4000, -1), config, points, held[row].expand(4000, -1)
        )
        share = torch.bincount(columns, minlength=41) / 4000
        torch.testing.assert_close(share, expected[row], atol=5e-4, rtol=0)
        seen = columns.unique()
        own = logprobs[[int((columns == c).nonzero()[0]) for c in seen]]
        torch.testing.assert_close(own.exp(), expected[row][seen], atol=1e-5, rtol=0)


def test_what_masked_canvases_need_is_refused_by_name(pair: Any) -> None:
    policy, _ = pair
    with pytest.raises(ConfigError, match=r"sampler\.name is 'emerge'; allowed: autoregressive"):
        sample(policy, canvas_of(), SamplerConfig(name="emerge"), generators(4))


def test_blocks_of_one_token_and_shifted_logits_are_a_causal_network(tmp_path: Path) -> None:
    model = write_causal(tmp_path, "qwen3")
    raw = {**model.config.to_dict(), "rope_theta": 10000.0, "block_size": 1, "mask_token_id": 40}
    core = MaskedTokenModel(replace(sdar.core_config(raw), shift_logits=True)).double()
    own = public_names(core.state_dict(), core.tied, sdar.KEYS)
    core.load_state_dict({name: model.state_dict()[public] for name, public in own.items()})
    appending = bare_policy(load_model(tmp_path).double())
    causal, tokens = canvas_of([PROMPTS[0]] * 3), canvas_of([PROMPTS[0]] * 3).tokens
    tokens = tokens.masked_fill(causal.response, 40)
    blocks = torch.arange(tokens.shape[1]).expand_as(tokens)
    masked = MaskedCanvas(
        tokens, causal.response, None, (0, 41), 40, stop_ids=(END,), blocks=blocks, block_size=1
    )
    causal = replace(causal, banned=(40,))
    unmasking = SamplerConfig(name="left_to_right", steps=LENGTH, temperature=0.0)
    written = sample(bare_policy(core), masked, unmasking, generators(3)).canvas
    appended = sample(
        appending, causal, SamplerConfig(name="autoregressive", temperature=0.0), generators(3)
    ).canvas
    where = appended.counted
    assert torch.equal(written.tokens[where], appended.tokens[where])
    inputs = {"input_ids": appended.tokens, "positions": where}
    with torch.no_grad():
        logits = core(**inputs, blocks=blocks).logits
        expected = appending.model(**inputs).logits
    torch.testing.assert_close(logits, expected, atol=1e-5, rtol=0)


def test_an_update_never_holds_the_logits_of_all_tokens(tmp_path: Path) -> None:
    rows, length, columns = 8, 64, 151936
    write_causal(tmp_path, "qwen3", vocab_size=columns)
    policy = bare_policy(load_model(tmp_path))
    canvas = replace(canvas_of([PROMPTS[0]] * rows, length), columns=(0, columns))
    draw_tokens = torch.Generator().manual_seed(0)
    canvas.tokens = torch.randint(10, columns, canvas.tokens.shape, generator=draw_tokens)
    rollout = Rollout(canvas, canvas.tokens, torch.zeros(canvas.tokens.shape), {})
    passes = draw_passes(rollout, AlgorithmConfig(strategy="causal"), generators(rows))
    with LargestLogits(columns) as largest:
        score(policy, canvas, passes).logprobs.sum().backward()
    assert 0 < largest.size <= LOGITS_BUDGET < 4 * rows * length * columns
    assert policy.model.head.weight.grad is not None
