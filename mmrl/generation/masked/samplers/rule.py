"""What a commit rule is, what it reads of a denoising step, and what it returns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from mmrl.generation.masked.samplers.loop_config import LoopConfig
from mmrl.generation.tokens.draw import filter_logits, forbid
from mmrl.generation.tokens.noise import Draws, categorical

if TYPE_CHECKING:
    from torch import Tensor

    from mmrl.generation.tokens.positions import Positions


class ResponseBlock(NamedTuple):
    """A part of the response that is written in consecutive `steps`, the `first` of all steps on.

    `positions` [B, L] bool. Without `block_size` the response is one block. `size`: positions for
    which the steps are planned, where the block may share its place with a prompt; else None.
    `begins`: the first of the steps of each row, where rows write different blocks; then `first` is
    0, and steps are counted from it.
    """

    positions: Tensor
    first: int
    steps: int
    size: int | None = None
    begins: Sequence[int] | None = None


@dataclass
class State:
    """One denoising step of one block, 0 .. block.steps - 1.

    `opened` [B, L] bool are the positions that were unwritten when the block began, `masked` those
    that still are; `draws` are the random numbers of the block."""

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


@dataclass
class Prediction:
    """Logits of one step at N positions, and the distribution that the sampler draws from.

    Attributes:
        logits: [N, C], guidance applied, in the network's precision.
        config: of the loop and its rule.
        stops: columns of the tokens that end a text.
    """

    logits: Tensor
    config: Any
    stops: Sequence[int] = ()

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


class Choice(NamedTuple):
    """What is drawn at N positions.

    Attributes:
        columns: [N] int64, column (token id minus `vocab[0]`) drawn at each.
        scores: [N], the rule's confidence in them; empty for a rule without.
        logprobs: [N] float32, those of `Prediction.chosen`; 0 where nothing was drawn.
        drawn: [N] bool, False where the rule takes the most likely column, without a draw.
    """

    columns: Tensor
    scores: Tensor
    logprobs: Tensor
    drawn: Tensor


def choose(rule: Rule, prediction: Prediction, uniforms: Tensor | None) -> Choice:
    """Draw a column at each of N positions by uniforms [N], the most likely without; and score it
    as the rule does."""
    columns, drawn = rule.draw(prediction, uniforms)
    scores = columns[:0] if rule.score is None else rule.score(prediction, columns)
    return Choice(columns, scores, prediction.chosen(columns).where(drawn, 0.0), drawn)


def draw_all(prediction: Prediction, uniforms: Tensor | None) -> tuple[Tensor, Tensor]:
    """Draw at every position; `draw` of rules that take no token without a draw."""
    columns = prediction.draw(uniforms)
    return columns, columns >= 0


def all_open(state: State, config: Any) -> Tensor:
    """[B, L] bool: every open position of the block; `candidates` of rules in which all compete."""
    return state.masked


def write_all(state: State, where: Positions, choice: Choice, config: Any) -> Tensor:
    """[N] bool, all of them: `write` of rules that know before the forward which positions a step
    writes."""
    return choice.columns >= 0


class Rule(NamedTuple):
    """A commit rule: at which positions a step draws tokens, and which of them it writes.

    `candidates(state, config)` returns [B, L] bool, the positions whose logits are computed and at
    which tokens are drawn; `write(state, where, choice, config)` [N] bool, those that the step
    writes. `config` has the settings of the rule's `Config`. `score(prediction, columns)` returns
    the confidence [N] in what was drawn; None where `write` asks for none. `ranks`: whether the
    rule orders positions by confidence. `fixed`: whether a block takes as many steps as its
    settings and its number of positions say, whatever is drawn; one of them may write nothing.
    `draw(prediction, uniforms)` returns the columns [N], and [N] bool, which of them were drawn.
    """

    candidates: Callable[[State, Any], Tensor]
    write: Callable[[State, Positions, Choice, Any], Tensor]
    Config: type[LoopConfig] = LoopConfig
    score: Callable[[Prediction, Tensor], Tensor] | None = None
    ranks: bool = False
    fixed: bool = False
    draw: Callable[[Prediction, Tensor | None], tuple[Tensor, Tensor]] = draw_all
