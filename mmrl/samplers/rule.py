"""What a commit rule is, what it reads of a denoising step, and what it returns."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from mmrl.config.options import NoOptions
from mmrl.positions import Positions
from mmrl.samplers.loop_config import LoopConfig
from mmrl.samplers.noise import Draws, categorical

if TYPE_CHECKING:
    from torch import Tensor


class ResponseBlock(NamedTuple):
    """A part of the response that is written in consecutive `steps`, the `first` of all steps on.

    `positions` [B, L] bool. Without `block_size` the response is one block. `size`: positions for
    which the steps are planned, where the block may share its place with a prompt; else None.
    """

    positions: Tensor
    first: int
    steps: int
    size: int | None = None


@dataclass
class State:
    """One denoising step of one block.

    Attributes:
        block: its positions and steps.
        step: 0 .. block.steps - 1.
        opened: [B, L] bool, positions that were unwritten when the block began.
        masked: [B, L] bool, those that still are.
        draws: random numbers of the block.
    """

    block: ResponseBlock
    step: int
    opened: Tensor
    masked: Tensor
    draws: Draws

    @property
    def last(self) -> bool:
        """Whether it is the last step of the block."""
        return self.step == self.block.steps - 1

    def uniform(self, purpose: str) -> Tensor:
        """[B, L] float32 uniforms of this step for one purpose."""
        return self.draws(self.block.first + self.step, purpose)


class Proposal(NamedTuple):
    """What a rule does at the N candidates.

    `columns` [N] int64: column (token id minus `vocab[0]`) proposed at each.
    `written` [N] bool: whether this step writes it.
    """

    columns: Tensor
    written: Tensor


@dataclass
class Prediction:
    """Logits of one step at N positions, and the distribution that the sampler draws from.

    Attributes:
        logits: [N, C], guidance applied, in the network's precision.
        config: of the loop.
        stops: columns of the tokens that end a text.
    """

    logits: Tensor
    config: LoopConfig
    stops: tuple[int, ...] = ()

    @cached_property
    def wide(self) -> Tensor:
        """[N, C] the logits, at least in float32."""
        return self.logits.double() if self.logits.dtype.itemsize > 4 else self.logits.float()

    @cached_property
    def logp(self) -> Tensor:
        """[N, C] log-probabilities that tokens are drawn with."""
        return filter_logits(self.wide, self.config).log_softmax(-1)

    @cached_property
    def probs(self) -> Tensor:
        """[N, C] probabilities that tokens are drawn with."""
        return self.logp.exp()

    @property
    def filters_confidence(self) -> bool:
        """Whether confidence is of the distribution that tokens are drawn with."""
        return getattr(self.config, "filtered_confidence", False) and self.config.temperature > 0

    @cached_property
    def confidence(self) -> Tensor:
        """[N, C] the model's own probabilities, by which positions are ranked.

        Temperature and filters are left out, as in most public samplers, unless the rule is set to
        `filtered_confidence`. With `eos: last` the end tokens are left out too.
        """
        logits = self.wide
        if self.filters_confidence:
            logits = filter_logits(logits, self.config)
        if self.config.eos == "last":
            logits = logits.clone()
            forbid(logits, self.stops)
        return logits.softmax(-1)

    def draw(self, uniforms: Tensor | None) -> Tensor:
        """[N] int64 columns by uniforms [N], the most likely without."""
        return self.logits.argmax(-1) if uniforms is None else categorical(self.probs, uniforms)

    def score(self, score: Score, columns: Tensor) -> Tensor:
        """[N] confidence of the columns [N] that were drawn."""
        return score(self, columns)

    def own_probability(self, columns: Tensor) -> Tensor:
        """[N] probabilities of columns [N] in `confidence`."""
        return self.confidence.gather(-1, columns.unsqueeze(-1)).squeeze(-1)

    def drawn_probability(self, columns: Tensor) -> Tensor:
        """[N] probabilities of columns [N] in `probs`."""
        return self.probs.gather(-1, columns.unsqueeze(-1)).squeeze(-1)

    def chosen(self, columns: Tensor) -> Tensor:
        """[N] float32 log-probs of the columns [N]; 0 at temperature 0."""
        if self.config.temperature == 0:
            return self.logits.new_zeros(len(columns)).float()
        return self.logp.gather(-1, columns.unsqueeze(-1)).squeeze(-1).float()


Score = Callable[[Prediction, "Tensor"], "Tensor"]
"""Confidence [N] of the columns [N] drawn from a prediction."""


@dataclass
class Drawn:
    """What is left of predictions whose logits never exist at once, see `mmrl.samplers.streamed`.

    Attributes:
        columns: [N] int64, drawn.
        scores: [N], the rule's confidence in them; None for a rule without.
        logprobs: [N] float32, those of `Prediction.chosen`.
        config: of the loop.
    """

    columns: Tensor
    scores: Tensor | None
    logprobs: Tensor
    config: LoopConfig

    def draw(self, uniforms: Tensor | None) -> Tensor:
        """The columns that were drawn with these uniforms."""
        return self.columns

    def score(self, score: Score, columns: Tensor) -> Tensor:
        """The rule's confidence, computed by `Rule.score`."""
        assert self.scores is not None, "a rule that scores what it draws says so in `Rule.score`"
        return self.scores

    def chosen(self, columns: Tensor) -> Tensor:
        """[N] float32 log-probs of the columns."""
        return self.logprobs


def forbid(logits: Tensor, columns: Iterable[int]) -> Tensor:
    """The logits [N, C] with -inf, in place, in some columns."""
    for column in columns:
        logits[:, column] = -float("inf")
    return logits


def filter_logits(logits: Tensor, config: LoopConfig) -> Tensor:
    """Logits [N, C] after temperature, top-k and top-p; excluded columns become -inf."""
    nothing = -float("inf")
    if config.temperature == 0:
        best = logits.argmax(-1, keepdim=True)
        return logits.new_full(logits.shape, nothing).scatter_(-1, best, 0.0)
    if config.temperature != 1:
        logits = logits / config.temperature
    if 0 < config.top_k < logits.shape[-1]:
        floor = logits.topk(config.top_k, dim=-1).values[..., -1:]
        logits = logits.masked_fill(logits < floor, nothing)
    if config.top_p < 1:
        ordered, order = logits.sort(dim=-1, descending=True)
        probs = ordered.softmax(-1)
        # a token stays when the more likely ones leave room, so the most likely always does
        out = probs.cumsum(-1) - probs >= config.top_p
        logits = logits.masked_fill(out.scatter(-1, order, out), nothing)
    return logits


def draw_tokens(state: State, where: Positions, prediction: Prediction | Drawn) -> Tensor:
    """[N] int64 columns for the N positions `where`, the most likely at temperature 0."""
    return prediction.draw(token_uniforms(state, where, prediction.config))


def token_uniforms(state: State, where: Positions, config: LoopConfig) -> Tensor | None:
    """[N] float32 uniforms that draw tokens at the positions `where`; None where the most
    likely are taken."""
    return None if config.temperature == 0 else where.take(state.uniform("token"))


def write_all(
    state: State, where: Positions, prediction: Prediction | Drawn, config: Any
) -> Proposal:
    """Draw a token for each candidate and write all of them: `propose` of rules that know before
    the forward which positions a step writes."""
    columns = draw_tokens(state, where, prediction)
    return Proposal(columns, columns >= 0)


class Rule(NamedTuple):
    """A commit rule: which positions a step may write, and what it writes there.

    `candidates(state, config)` returns [B, L] bool, the positions whose logits are computed, and
    `propose(state, where, prediction, config)` a `Proposal` for them, where `config` has the
    settings of the rule's `Config`. `score(prediction, columns, config)` returns the confidence
    [N] that `propose` asks the prediction for. A rule `streams` where `propose` asks for nothing
    but that and `draw_tokens`. `check(config)` refuses settings that the rule cannot run with.
    `ranks`: whether it orders positions by confidence. `traced`: whether `written_at` records in
    which order a canvas was written. `fixed`: whether a block takes as many steps as its
    settings and its number of positions say, whatever is drawn; one of them may write nothing.
    """

    candidates: Callable[[State, Any], Tensor]
    propose: Callable[[State, Positions, Any, Any], Proposal]
    Config: type = NoOptions
    check: Callable[[Any], None] = lambda config: None
    ranks: bool = False
    traced: bool = True
    fixed: bool = False
    score: Callable[[Prediction, Tensor, Any], Tensor] | None = None
    streams: bool = False
