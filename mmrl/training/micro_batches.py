"""The parts of an optimiser step whose gradients are added up: rows of its batch, their passes.

The graphs of one part are in memory at a time. Where the loss is a sum over passes, a part is one
pass and has its own share of the loss. Where it is not (an evidence bound under a ratio, an upper
bound, ratios of blocks or sequences, a geometric mean), up to `at_once` passes form one part. With
more passes all are first scored without gradient, the gradient of the loss with respect to their
log-probs is taken, and each part propagates its share of that through the network: the same
gradient, for one more forward of every pass. Only a number per position and pass is kept.
"""

import textwrap
from collections.abc import Callable, Iterator
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
        unmoved: whether the policy of this step is still the one that sampled.
        logprob_gradients: gradient of the loss with respect to the log-probs, by micro-batch.
        values: of the value model as it was, by micro-batch; empty without one.
        estimates: returns and advantages that follow from them.
    """

    task: Task
    batch: RolloutBatch
    passes: Passes
    size: BatchSize
    iteration: int
    unmoved: bool
    old: list[Tensor | None] = field(default_factory=list)
    reference: list[Tensor | None] = field(default_factory=list)
    logprob_gradients: dict[int, Tensor] = field(default_factory=dict)
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
    """Micro-batch `m`, the `rows` of it, and the `draws` [k] of their passes, None for all."""

    item: Prepared
    m: int
    rows: slice
    draws: Tensor | None
    first: bool

    @property
    def passes(self) -> Passes:
        """The passes of this part."""
        passes = self.item.passes[self.rows]
        return passes if self.draws is None else passes.select_draws(self.draws)

    @property
    def prompts(self) -> list[str]:
        """What its rollouts are of, for messages."""
        some = {prompt.id: prompt.text for prompt in self.item.batch.prompts[self.rows]}
        return [f"{name} ({textwrap.shorten(text, 60)})" for name, text in some.items()]

    @property
    def has_loss(self) -> bool:
        """Whether the part has its own share of the loss, and not only of the gradient."""
        return self.draws is None or self.item.task.algorithm.pass_by_pass

    def loss(self, new: Tensor, entropy: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """The part's share of the loss, and of the metrics."""
        inputs = self._inputs(self.passes, new, self.draws)
        inputs.entropy = entropy
        inputs.weights = None if self.draws is None else self._weights()
        return policy_loss(inputs, self.item.task.algorithm, self.item.size)

    def value_loss(self, values: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """The part's share of the value loss, and of its metrics; `values` [k, b, L]."""
        item, draws = self.item, slice(None) if self.draws is None else self.draws
        known = ~item.batch.rewards[self.rows].isnan().to(values.device)
        old, returns = item.values[self.m][draws], item.estimates[self.m].returns[draws]
        weights = self._weights().tokens * known[None, :, None]
        epsilon = item.task.algorithm.value_epsilon
        return value_loss(values, old, returns, weights, epsilon, item.size)

    def gradient_loss(
        self, new: Tensor, score_all: Callable[[], Tensor]
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """A scalar whose gradient is this part's share; the first part has the metrics as well.

        Args:
            new: [k, b, L] log-probs of the part, with gradient.
            score_all: gives the log-probs of all passes of the micro-batch, without gradient.
        """
        item, metrics = self.item, {}
        if self.first:
            known = item.old[self.m] if item.unmoved else None
            logprobs = (score_all() if known is None else known).clone().requires_grad_()
            with torch.enable_grad():
                inputs = self._inputs(item.passes[self.rows], logprobs, None)
                loss, metrics = policy_loss(inputs, item.task.algorithm, item.size)
            [item.logprob_gradients[self.m]] = torch.autograd.grad(loss, logprobs)
            metrics["loss"] = loss.detach()
        return (new * item.logprob_gradients[self.m][self.draws]).sum(), metrics

    def _weights(self) -> Weights:
        """Those that the part's passes have among all of the micro-batch."""
        item, draws = self.item, slice(None) if self.draws is None else self.draws
        whole = batch_weights(item.passes[self.rows], item.task.algorithm, item.size)
        return Weights(whole.entries[draws], whole.tokens[draws])

    def _inputs(self, passes: Passes, new: Tensor, draws: Tensor | None) -> LossInputs:
        item, algorithm = self.item, self.item.task.algorithm
        some = slice(None) if draws is None else draws
        old, reference = (
            None if known is None else known[some]
            for known in (item.old[self.m], item.reference[self.m])
        )
        if algorithm.beta > 0 and algorithm.kl_to == "old":
            # with a single iteration old is new without its gradient
            reference = new.detach() if old is None else old
        advantages = item.batch.advantages[self.rows].to(new.device)
        if algorithm.completion_value is not None and item.batch.token_advantages is not None:
            advantages = item.batch.token_advantages[None, self.rows].to(new.device)
        if item.estimates:
            advantages = item.estimates[self.m].advantages[some]
        return LossInputs(passes, new, advantages, old, reference)


def split_parts(
    item: Prepared, micro_batches: list[slice], at_once: int, everywhere: bool = False
) -> Iterator[Part]:
    """The parts of a prepared batch, in the order in which they are trained on.

    Passes that score nothing in a micro-batch are left out, unless `everywhere`: processes that
    share the weights must all make the same forwards.
    """
    size = 1 if item.task.algorithm.pass_by_pass else at_once
    for m, rows in enumerate(micro_batches):
        if len(item.passes) <= size:
            yield Part(item, m, rows, None, True)
            continue
        used = item.passes.scored[:, rows].flatten(1).any(1) | everywhere
        draws = used.nonzero().flatten() if bool(used.any()) else used.new_zeros(1).long()
        for n, some in enumerate(draws.split(size)):
            yield Part(item, m, rows, some, n == 0)
