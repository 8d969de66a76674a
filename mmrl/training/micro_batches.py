"""Mini-batches, and the parts of an optimiser step whose gradients are added up.

A part is rows of a batch with their passes; the graphs of one part are in memory at a time. Where
the loss is a sum over passes, a part is one pass of a micro-batch and has its own share of the
loss; where it is not (an evidence bound under a ratio, an upper bound, ratios of blocks or
sequences, a geometric mean), all passes form one part.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from math import lcm
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from mmrl.algorithms.aggregation import BatchSize
from mmrl.algorithms.contrasts import CONTRASTS
from mmrl.algorithms.importance_sampling import Mismatch
from mmrl.algorithms.loss import LossInputs, Weights, batch_weights, compare, policy_loss
from mmrl.algorithms.value import Estimates, compute_advantages, value_loss
from mmrl.randomness import permutation
from mmrl.rollouts.rollout import RolloutBatch
from mmrl.rollouts.tasks import Task
from mmrl.types import Passes, Sample, Scores

if TYPE_CHECKING:
    from mmrl.models import Policy


@dataclass
class Prepared:
    """One task's rollouts of one optimiser step: drawn passes, frozen scores by micro-batch, and of
    a value model, if there is one, values as they were, with the returns and advantages that
    follow. `averaged` are scores under the old policy of contrasts, `slopes` [K, B, 1] those of a
    loss over groups, see `mmrl.algorithms.over_groups`, `corrections` by micro-batch those for an
    engine that sampled, and `mismatch` how far it was from the policy."""

    task: Task
    batch: RolloutBatch
    passes: Passes
    size: BatchSize
    iteration: int
    old: list[Scores | None] = field(default_factory=list)
    reference: list[Scores | None] = field(default_factory=list)
    values: list[Tensor] = field(default_factory=list)
    estimates: list[Estimates] = field(default_factory=list)
    averaged: list[Scores | None] = field(default_factory=list)
    slopes: Tensor | None = None
    corrections: list[Tensor] = field(default_factory=list)
    mismatch: Mismatch = field(default_factory=Mismatch)

    def add_values(self, rows: slice, values: Tensor) -> None:
        """Keep the values [K, b, L] of the next micro-batch, and estimate its advantages."""
        config, batch = self.task.algorithm.value, self.batch
        assert config is not None
        unknown, passes = batch.rewards[rows, None].isnan(), self.passes[rows]
        rewards = batch.position_rewards()[rows].masked_fill(unknown, torch.nan).to(values.device)
        self.values.append(values)
        found = compute_advantages(values, rewards, passes.scored, config, passes.steps)
        self.estimates.append(found)


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

    def loss(self, new: Scores, rewards: Tensor | None = None) -> tuple[Tensor, dict[str, Tensor]]:
        """The part's share of the loss, and of the metrics; `rewards` [n, B] with their gradient
        where the loss follows it."""
        inputs = replace(self._inputs(new), rewards=rewards)
        return policy_loss(inputs, self.item.task.algorithm, self.item.size)

    def differentiate(self, policy: Policy, finished: Tensor) -> Tensor:
        """[n, B] float32: the weighted sum of the task's rewards of n copies [n, B, D] of the
        latents of its rollouts, with its gradient. Each is decoded in float32, and again in the
        backward pass instead of being kept."""
        batch, rows = self.item.batch, self.rows
        canvas: Any = batch.rollout.canvas[rows]
        prompts, scorer = batch.prompts[rows], self.item.task.scorer
        pairs = zip(prompts, batch.completions[rows], strict=True)
        samples = [Sample.of(prompt, completion) for prompt, completion in pairs]
        found = []
        for latents in finished:
            pixels = policy.render(replace(canvas, path=latents[:, None]), prompts)
            found.append(scorer.differentiate(pixels, samples))
        return torch.stack(found).to(finished.device)

    def measure(self, new: Scores) -> Tensor:
        """What a loss over groups measures of the rollouts, [K, b, 1], before they are trained on;
        the part has all of their passes."""
        item, algorithm = self.item, self.item.task.algorithm
        assert algorithm.group is not None, "asked before"
        measure = algorithm.group.measure
        if algorithm.has_ratio:
            return measure(compare(self._inputs(new), algorithm)[0])
        contrast = CONTRASTS[algorithm.contrast]
        other = (item.averaged if contrast.reads_old else item.reference)[self.m]
        return measure(new) - measure(other or new)

    def _inputs(self, new: Scores) -> LossInputs:
        item, algorithm, draws = self.item, self.item.task.algorithm, self.draws
        old, reference, averaged = (
            None if known is None else known.select_draws(draws)
            for known in (each[self.m] for each in (item.old, item.reference, item.averaged))
        )
        if algorithm.beta > 0 and algorithm.kl_to == "old":
            # with a single iteration old is new without its gradient
            reference = new.detach() if old is None else old
        slopes = None if item.slopes is None else item.slopes[draws, self.rows]
        known = old, reference, self._weights(), averaged, slopes
        correction = item.corrections[self.m][draws] if item.corrections else None
        advantages = self._advantages().to(new.logprobs.device)
        return LossInputs(self.passes, new, advantages, *known, correction=correction)

    def _advantages(self) -> Tensor:
        """Of each pass by a value model, of slices, or of rollouts; see `LossInputs`."""
        item, batch = self.item, self.item.batch
        if item.estimates:
            return item.estimates[self.m].advantages[self.draws]
        if item.task.algorithm.completion_value is not None and batch.token_advantages is not None:
            return batch.token_advantages[None, self.rows]
        return batch.advantages[self.rows]

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


def split_mini_batches(
    batch: RolloutBatch, number: int, num_generations: int, *names: int | str, whole: bool = False
) -> list[RolloutBatch]:
    """Split this process's rollouts, which are whole groups, into a number of mini-batches that
    divides theirs, each of which gives one optimiser step; with 1 the batch stays as it is.

    Blocks of consecutive groups, as small as divide evenly, are shuffled, by a draw of these names,
    and then split. So every mini-batch has as many rollouts of each block as any other, each
    process as many as any other, and which rollouts it has depends on neither the number of
    processes nor the micro-batch. A group need not stay together, as its advantages are computed
    before, unless groups are to be `whole`: then these are shuffled."""
    if number == 1:
        return [batch]
    unit = num_generations if whole else 1
    size = lcm(number * unit, num_generations)
    share = size // unit // number
    rows: list[list[int]] = [[] for _ in range(number)]
    for first in range(0, len(batch), size):
        order = permutation(size // unit, *names, *batch.names[first])
        for n, own in enumerate(rows):
            some = sorted(order[n * share : (n + 1) * share])
            own += [first + place * unit + row for place in some for row in range(unit)]
    return [batch.select(own) for own in rows]
