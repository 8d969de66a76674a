"""The commit rules with the random numbers of the public samplers, in their order and shapes.

The public code draws over full tensors from one generator for the batch, also where a position is
written already. These rules compute logits at every position of a block and draw so.
"""

from collections.abc import Callable
from typing import Any
from unittest import mock

import torch
from torch import Generator, Tensor

from mmrl.generation.masked.canvas import MaskedCanvas
from mmrl.generation.masked.samplers import RULES, denoise
from mmrl.generation.masked.samplers.confidence import (
    most_certain,
    next_in_order,
    probability,
    quota,
)
from mmrl.generation.masked.samplers.denoise import cached_columns
from mmrl.generation.masked.samplers.rule import Choice, Prediction, Rule, State, forbid
from mmrl.generation.masked.samplers.scheduled import alpha, maskgit_counts, noise_scale
from mmrl.generation.tokens.noise import gumbel
from mmrl.generation.tokens.positions import Positions
from mmrl.samplers import SamplerConfig
from mmrl.types import Rollout

Proposal = tuple[Tensor, Tensor]
"""Columns [N] that are drawn, and which of them are written [N]."""


def sample_publicly(
    policy: Any,
    canvas: MaskedCanvas,
    config: SamplerConfig,
    seed: int = 0,
    dtype: torch.dtype = torch.float64,
) -> Rollout:
    """`mmrl.samplers.sample` with the draws of the public sampler.

    Args:
        policy: whose network predicts.
        canvas: B rows.
        config: of the sampler.
        seed: of the one generator.
        dtype: of noise and confidence: float64 in LLaDA, MMaDA and Fast-dLLM, that of the model in
            MaskGRPO.
    """
    draws = PublicDraws(
        Generator().manual_seed(seed), dtype, next(iter(canvas.forbidden_columns), None)
    )
    ways = {"emerge": draws.emerge, "maskgit": draws.maskgit, "dynamic": draws.dynamic}
    propose = ways.get(config.name, draws.ranked)
    return propose_with(policy, canvas, config, propose, lambda state, _: state.block.positions)


def propose_with(
    policy: Any,
    canvas: MaskedCanvas,
    config: SamplerConfig,
    propose: Callable[..., Proposal],
    candidates: Callable[[State, Any], Tensor] | None = None,
) -> Rollout:
    """A rollout for which `propose(state, where, prediction, config)` draws the columns [N] and
    chooses which of them are written [N], at the rule's own candidates or at others."""
    written: list[Tensor] = []

    def draw(network: Any, state: State, where: Positions, rule: Rule, stream: Any) -> Choice:
        logits = forbid(network(where), denoise.suppressed_columns(canvas, config))
        prediction = Prediction(logits, config, canvas.columns_of(canvas.stop_ids))
        columns, chosen = propose(state, where, prediction, config)
        written.append(chosen)
        return Choice(columns, columns, prediction.chosen(columns), columns >= 0)

    rule = RULES[config.name]._replace(write=lambda *_: written[-1])
    rule = rule if candidates is None else rule._replace(candidates=candidates)
    with mock.patch.object(denoise, "draw", draw):
        return denoise.denoise(policy, canvas, config, rule, Generator())


class PublicDraws:
    """Proposals from one generator, drawn as the public samplers do."""

    def __init__(self, generator: Generator, dtype: torch.dtype, mask_column: int | None) -> None:
        self.generator, self.dtype, self.mask_column = generator, dtype, mask_column

    def uniforms(
        self, state: State, where: Positions, config: SamplerConfig, dtype: torch.dtype, *shape: int
    ) -> Tensor:
        """[N, …] uniforms, drawn as [B, columns, …] over all that the network computed."""
        start, stop = 0, where.where.shape[1]
        if state.step > 0 and config.cache != "none":
            start, stop = cached_columns(state.block.positions, config)
        size = (len(where.where), stop - start, *shape)
        for _ in range(2 if state.step > 0 and config.cache == "prefix" else 1):
            drawn = torch.rand(size, dtype=dtype, generator=self.generator)
        return drawn[where.where[:, start:stop]]

    def tokens(
        self, state: State, where: Positions, prediction: Prediction, config: SamplerConfig
    ) -> Tensor:
        """LLaDA's draw: argmax of exp(z) / (-log U)^T. Nothing is drawn at temperature 0."""
        logits = prediction.logits
        if config.temperature == 0:
            return logits.argmax(-1)
        noise = self.uniforms(state, where, config, self.dtype, logits.shape[-1])
        return (logits.to(self.dtype).exp() / (-noise.log()) ** config.temperature).argmax(-1)

    def scores(
        self,
        state: State,
        where: Positions,
        prediction: Prediction,
        tokens: Tensor,
        config: SamplerConfig,
    ) -> Tensor:
        """What ranks positions, in the precision of the public code."""
        if getattr(config, "target", "") == "random":
            return self.uniforms(state, where, config, torch.float32)
        logits, ends = prediction.logits.to(self.dtype), list(prediction.stops)
        if config.eos == "last":
            logits = logits.index_fill(-1, torch.tensor(ends), -torch.inf)
        scores = probability(logits.softmax(-1), tokens)
        if config.eos == "last":
            scores = scores.masked_fill(torch.isin(tokens, torch.tensor(ends)), -torch.inf)
        return scores

    def ranked(
        self, state: State, where: Positions, prediction: Prediction, config: SamplerConfig
    ) -> Proposal:
        """The even share of static, or of left_to_right; equal scores go where `topk` puts them."""
        tokens = self.tokens(state, where, prediction, config)
        if config.name == "left_to_right":
            return tokens, where.take(next_in_order(state, config))
        scores = self.scores(state, where, prediction, tokens, config)
        return tokens, highest(state, where, scores, quota(state, config))

    def dynamic(
        self, state: State, where: Positions, prediction: Prediction, config: SamplerConfig
    ) -> Proposal:
        """All above the threshold and the best of each row; all that is open in the last step."""
        tokens, open_ = self.tokens(state, where, prediction, config), where.take(state.masked)
        if state.last:
            return tokens, open_
        scores = self.scores(state, where, prediction, tokens, config)
        best = highest(state, where, scores, state.masked.any(1).long())
        return tokens, (best | (scores >= config.threshold)) & open_

    def maskgit(
        self, state: State, where: Positions, prediction: Prediction, config: SamplerConfig
    ) -> Proposal:
        """Tokens first, then the noise of all n positions."""
        probs = prediction.probs
        tokens = torch.multinomial(probs, 1, generator=self.generator).squeeze(-1)
        uniforms = torch.empty(len(state.masked), len(probs) // len(state.masked))
        noise = gumbel(uniforms.uniform_(0, 1, generator=self.generator).flatten())
        sure = probability(probs, tokens).clamp(min=1e-20).log()
        scores, count = sure + noise_scale(state, config) * noise, maskgit_counts(state, config)
        return tokens, most_certain(state, where, scores, count)

    def emerge(
        self, state: State, where: Positions, prediction: Prediction, config: SamplerConfig
    ) -> Proposal:
        """The joint draw of a token or "stay masked".

        Where the mask token lies outside the response vocabulary (images), its weight is a column
        more, over [p (a_t - a_s) / a_t, a_s / a_t] at every response position. Where it is one of
        the columns (text), it is overwritten by a_s / a_t while the others get p (a_t - a_s), and
        the draw is over the whole canvas: without the division the public text sampler writes too
        little at first and leaves the most for its last step.
        """
        probs, open_, last = prediction.probs, where.take(state.masked), state.last
        now, then = (alpha(config.schedule, state.step + n, state.block.steps) for n in (0, 1))
        if self.mask_column is None:
            stay = (then / now).expand(len(probs), 1)
            weights = probs if last else torch.cat((probs * ((now - then) / now), stay), -1)
            drawn = torch.multinomial(weights, 1, generator=self.generator).squeeze(-1)
            most = probs.shape[-1] - 1
            return drawn.clamp(max=most), (drawn <= most) & open_
        if not last:
            probs = probs * (now - then)
            probs[:, self.mask_column] = then / now
        weights = probs.new_ones(*where.where.shape, probs.shape[-1])
        weights[where.where] = probs
        drawn = torch.multinomial(weights.flatten(0, 1), 1, generator=self.generator)
        drawn = drawn.view(where.where.shape)[where.where]
        return drawn, (drawn != self.mask_column) & open_


def highest(state: State, where: Positions, scores: Tensor, count: Tensor) -> Tensor:
    """[N] bool: the `count` [B] open positions of each row that `topk` finds."""
    full = torch.full(where.where.shape, -torch.inf, dtype=scores.dtype)
    full[where.where] = scores.clamp(min=torch.finfo(scores.dtype).min)
    full = full.masked_fill(~state.masked, -torch.inf)
    chosen = torch.zeros_like(where.where)
    for row, number in enumerate(count.tolist()):
        chosen[row, full[row].topk(number).indices] = True
    return where.take(chosen & state.masked)
