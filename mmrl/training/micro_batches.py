"""The parts of an optimiser step whose gradients are added up: rows of its batch, their passes.

The graphs of one part are in memory at a time. Where the loss is a sum over passes, a part is one
pass of a micro-batch and has its own share of the loss; where it is not (an evidence bound under a
ratio, an upper bound, ratios of blocks or sequences, a geometric mean), all passes form one part.
"""

import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor

from mmrl.algorithms.aggregation import BatchSize
from mmrl.algorithms.loss import LossInputs, Weights, batch_weights, policy_loss
from mmrl.algorithms.value import Estimates, compute_advantages, value_loss
from mmrl.rollouts.rollout import RolloutBatch
from mmrl.rollouts.tasks import Task
from mmrl.types import Passes


@dataclass
class Prepared:
    """One task's rollouts of one optimiser step: mask draws, frozen log-probs by micro-batch.

    Attributes:
        values: of the value model as it was, by micro-batch; empty without one.
        estimates: returns and advantages that follow from them.
    """

    task: Task
    batch: RolloutBatch
    passes: Passes
    size: BatchSize
    iteration: int
    old: list[Tensor | None] = field(default_factory=list)
    reference: list[Tensor | None] = field(default_factory=list)
    values: list[Tensor] = field(default_factory=list)
    estimates: list[Estimates] = field(default_factory=list)

    def add_values(self, rows: slice, values: Tensor) -> None:
        """Keep the values [K, b, L] of the next micro-batch, and estimate its advantages."""
        config, batch = self.task.algorithm.value, self.batch
        assert config is not None
        earned = batch.earned()[rows].masked_fill(batch.rewards[rows, None].isnan(), torch.nan)
        scored = self.passes.scored[:, rows]
        steps = None if self.passes.steps is None else self.passes.steps[rows]
        self.values.append(values)
        paid = earned.to(values.device)
        self.estimates.append(compute_advantages(values, paid, scored, config, steps))


@dataclass
class Part:
    """Micro-batch `m`, the `rows` of it, and the `draws` of their passes."""

    item: Prepared
    m: int
    rows: slice
    draws: slice

    @property
    def passes(self) -> Passes:
        """The passes of this part."""
        return self.item.passes[self.rows].select_draws(self.draws)

    @property
    def prompts(self) -> list[str]:
        """What its rollouts are of, for messages."""
        some = {prompt.id: prompt.text for prompt in self.item.batch.prompts[self.rows]}
        return [f"{name} ({textwrap.shorten(text, 60)})" for name, text in some.items()]

    def loss(self, new: Tensor, entropy: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """The part's share of the loss, and of the metrics."""
        item, algorithm, draws = self.item, self.item.task.algorithm, self.draws
        old, reference = (
            None if known is None else known[draws]
            for known in (item.old[self.m], item.reference[self.m])
        )
        if algorithm.beta > 0 and algorithm.kl_to == "old":
            # with a single iteration old is new without its gradient
            reference = new.detach() if old is None else old
        advantages = item.batch.advantages[self.rows].to(new.device)
        if algorithm.completion_value is not None and item.batch.token_advantages is not None:
            advantages = item.batch.token_advantages[None, self.rows].to(new.device)
        if item.estimates:
            advantages = item.estimates[self.m].advantages[draws]
        inputs = LossInputs(self.passes, new, advantages, old, reference)
        inputs.entropy, inputs.weights = entropy, self._weights()
        return policy_loss(inputs, algorithm, item.size)

    def value_loss(self, values: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """The part's share of the value loss, and of its metrics; `values` [k, b, L]."""
        item, draws = self.item, self.draws
        known = ~item.batch.rewards[self.rows].isnan().to(values.device)
        old, returns = item.values[self.m][draws], item.estimates[self.m].returns[draws]
        weights = self._weights().tokens * known[None, :, None]
        epsilon = item.task.algorithm.value_epsilon
        return value_loss(values, old, returns, weights, epsilon, item.size)

    def _weights(self) -> Weights:
        """Those that the part's passes have among all of the micro-batch."""
        item = self.item
        whole = batch_weights(item.passes[self.rows], item.task.algorithm, item.size)
        return Weights(whole.entries[self.draws], whole.tokens[self.draws])


def split_parts(
    item: Prepared, micro_batches: list[slice], everywhere: bool = False
) -> Iterator[Part]:
    """The parts of a prepared batch, in the order in which they are trained on.

    Passes that score nothing in a micro-batch are left out, unless `everywhere`: processes that
    share the weights must all make the same forwards.
    """
    for m, rows in enumerate(micro_batches):
        if len(item.passes) == 1 or not item.task.algorithm.pass_by_pass:
            yield Part(item, m, rows, slice(None))
            continue
        used = item.passes.scored[:, rows].flatten(1).any(1) | everywhere
        for draw in used.nonzero().flatten().tolist() or [0]:
            yield Part(item, m, rows, slice(draw, draw + 1))
