"""The update of an RL run: masks and frozen log-probs, then inner iterations of the policy.

The gradient of a batch is a sum over parts (`mmrl.training.micro_batches`) whose terms are already
divided by counts of the whole batch, so neither the micro-batch size nor the number of processes
changes it.
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import astuple
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from torch import Tensor

from mmrl.algorithms import BatchSize, count_batch, draw_masks
from mmrl.estimators import TokenScores, highest_entropy, score
from mmrl.randomness import generator
from mmrl.rl_config import MAX_AUTO_BATCH, RLConfig
from mmrl.rollouts.rollout import RolloutBatch
from mmrl.rollouts.tasks import Task
from mmrl.run_config import build_schedule
from mmrl.runtime.activity import activity, advance
from mmrl.runtime.interrupt import Interrupted, leaving_together
from mmrl.runtime.launch import takes_part
from mmrl.runtime.sharding import assign, load_moments, prepare, shard_policy
from mmrl.training.adapter import adapter_off, plain_state
from mmrl.training.micro_batches import Part, Prepared, parts
from mmrl.training.optimizers import build_optimizers
from mmrl.training.run_trainer import RunTrainer
from mmrl.training.trainable import (
    exchanged,
    freeze_copy,
    starting_values,
    train_parts,
    trained_counts,
)
from mmrl.training.value_model import ValueModel
from mmrl.types import Canvas, Passes
from models import Policy

logger = logging.getLogger(__name__)


class Trainer(RunTrainer[RLConfig]):
    """The policy of an RL run with its reference, value model, optimiser and schedule.

    Attributes:
        trained: the policy's model, not wrapped for several processes.
        frozen: a copy of it as it was, the reference; None with an adapter, or without a KL.
        start: what an adapter's run trains in full, as it was, where there is a KL.
        value: the value model, if there is one.
    """

    def __init__(self, config: RLConfig, policy: Policy, accelerator: Accelerator) -> None:
        super().__init__(config, accelerator, config.model.dtype)
        config, model, self.policy = self.config, config.model, policy
        policy.network.gradient_checkpointing = model.gradient_checkpointing
        self.frozen = None
        if config.needs_reference and model.lora is None:
            self.frozen = freeze_copy(policy.network, model, accelerator)
            self.set_precision(self.frozen)
        self.value = None if config.value is None else ValueModel(config, policy, accelerator)
        self.set_precision(policy.network)
        self.trained = policy.model = train_parts(policy.network, model, config.seed)
        for line in trained_counts(policy.network):
            logger.info("trained: %s", line)
        self.micro_batch_size = config.micro_batch_size(accelerator.num_processes)
        if config.per_device_train_batch_size is None:
            logger.info(
                "per_device_train_batch_size: %d, the largest number up to %d that divides the"
                " rollouts per device of every task",
                self.micro_batch_size,
                MAX_AUTO_BATCH,
            )
        shard_policy(policy, accelerator)
        keeps_start = config.needs_reference and model.lora is not None
        self.start = starting_values(policy.network) if keeps_start else {}
        [optimizer] = build_optimizers(policy.model, config)
        self.modules = [self.trained]
        if self.value is not None:
            self.value.join(optimizer, config)
            self.modules.append(self.value.trained)
        self.schedule = build_schedule(optimizer, config, config.optimizer_steps)
        policy.model, self.optimizers = prepare(accelerator, policy.model, [optimizer])
        [self.optimizer] = self.optimizers
        policy.model.eval()  # no dropout: new and old log-probs must come from the same function

    def update(self, batches: Mapping[str, tuple[Task, RolloutBatch]]) -> dict[str, float]:
        """All inner iterations on the rollouts of one step.

        A stop leaves it between two micro-batches until the first inner iteration is applied; the
        further ones are then finished, because the weights are between two steps.

        Raises:
            DivergenceError: a gradient is not finite; the weights are left as they were.
            Interrupted: a stop is requested on any process; nothing was changed.
        """
        with self.policy.network.attention(self.config.model.attn_implementation):
            try:
                return self._update(list(batches.values()))
            except Interrupted:
                self.optimizer.zero_grad(set_to_none=True)
                raise

    def _update(self, work: list[tuple[Task, RolloutBatch]]) -> dict[str, float]:
        iterations = max(task.algorithm.num_iterations for task, _ in work)
        started = time.perf_counter()
        plans = [[self._prepare(task, batch, i) for task, batch in work] for i in range(iterations)]
        prepared = time.perf_counter()
        sums: dict[str, Tensor] = defaultdict(lambda: torch.zeros((), device=self.policy.device))
        for n, plan in enumerate(plans):
            self._inner_step(plan, sums, leaving_together(self.sharded) if n == 0 else None)
        self.step += 1
        metrics = self._reduced(sums, iterations)
        metrics["learning_rate"] = float(self.schedule.get_last_lr()[0])
        metrics["time/score_s"] = prepared - started
        metrics["time/update_s"] = time.perf_counter() - prepared
        return metrics

    @torch.no_grad()
    def _prepare(self, task: Task, batch: RolloutBatch, iteration: int) -> Prepared:
        """Draw the masks of an inner iteration; score old and reference policy on them."""
        algorithm, seed = task.algorithm, self.config.seed
        generators = [
            generator(seed, "masks", task.name, self.step, *name, iteration) for name in batch.names
        ]
        passes = draw_masks(batch.rollout, algorithm, generators, iteration)
        if batch.left_out is not None:
            passes = passes.exclude_rows(batch.left_out.to(self.policy.device))
        passes = self._in_step(passes)
        prepared = Prepared(task, batch, passes, self._size(task, batch, passes), iteration)
        canvas, uncertain = batch.rollout.canvas, algorithm.top_entropy_quantile < 1
        seen = (
            canvas.freeze_images(self.policy.model) if uncertain or algorithm.needs_old else canvas
        )
        if uncertain:
            passes = self._keep_uncertain(prepared, seen)
        with self.reference() if algorithm.needs_reference else nullcontext():
            known = canvas.freeze_images(self.policy.model) if algorithm.needs_reference else canvas
        for rows in self._scored(len(batch)):
            some = passes[rows]
            # with a single iteration old is new without its gradient, so it costs nothing
            scores = self._score(prepared, rows, some, seen) if algorithm.needs_old else None
            prepared.old.append(None if scores is None else scores.logprobs)
            if self.value is not None and algorithm.value is not None:
                prepared.add_values(rows, self.value(scores, batch.rollout.canvas[rows], some))
            prepared.reference.append(None)
            if algorithm.needs_reference:
                with self.reference():
                    prepared.reference[-1] = self._score(prepared, rows, some, known).logprobs
        return prepared

    def _scored(self, count: int) -> Iterator[slice]:
        """The micro-batches of so many rows, to be scored; a stop leaves between two of them."""
        batches = self._micro_batches(count)
        with activity("scoring", len(batches)), leaving_together(self.sharded):
            for rows in batches:
                yield rows
                advance()

    def _in_step(self, passes: Passes) -> Passes:
        """As many draws as on all other processes, where all take part in every forward."""
        if not self.sharded:
            return passes
        local = torch.tensor([len(passes)], device=self.policy.device)
        return passes.pad_draws(int(torch.as_tensor(self.accelerator.gather(local)).max()))

    def _keep_uncertain(self, item: Prepared, seen: Canvas) -> Passes:
        """Score only the tokens about which the policy, which has not moved yet, is least sure."""
        share = item.task.algorithm.top_entropy_quantile
        kept = []
        for rows in self._scored(len(item.batch)):
            some = item.passes[rows]
            entropy = self._score(item, rows, some, seen).entropy
            kept.append(highest_entropy(entropy, some.scored, share))
        item.passes = self._in_step(item.passes.restrict_to(torch.cat(kept, 1)))
        item.size = self._size(item.task, item.batch, item.passes)
        return item.passes

    def _inner_step(
        self,
        plan: Sequence[Prepared],
        sums: dict[str, Tensor],
        leaving: AbstractContextManager[None] | None,
    ) -> None:
        """One optimiser step on one inner iteration of all tasks.

        Args:
            plan: what each task brings.
            sums: metrics, which this adds to.
            leaving: context in which it may be left; None where it has to be finished.
        """
        at_once = self.config.passes_at_once
        work = [
            part
            # the last part, which all wrapped models take part in, has to ask the value model
            for item in sorted(plan, key=lambda item: item.task.algorithm.value is not None)
            for part in parts(item, self._micro_batches(len(item.batch)), at_once, self.sharded)
        ]
        self.accelerator.gradient_accumulation_steps = len(work)
        self.accelerator.step = 0  # counts parts, whose number may change from step to step
        # undoes accelerate's mean over parts and processes: the terms are shares of a sum
        scale = len(work) * self.accelerator.num_processes
        with activity("update", len(work)):
            # processes may have different numbers of parts, and communicate in the last
            with leaving or nullcontext():
                for part in work[:-1]:
                    self._learn(part, scale, sums, alone=len(plan) == 1)
                    advance()
            self._learn(work[-1], scale, sums, alone=len(plan) == 1)
        self.schedule.step()

    def _learn(self, part: Part, scale: float, sums: dict[str, Tensor], alone: bool) -> None:
        """Add the gradient of a part; the last of an inner iteration takes the optimiser step."""
        models = {"grad_norm": self.policy.model}
        if self.value is not None and self.value.network is not None:
            models["val/grad_norm"] = self.value.network
        unreduced = [] if self.sharded else list(models.values())
        weight = part.item.task.config.weight
        prefix = "" if alone else f"{part.item.task.name}/"
        with self.accelerator.accumulate(*unreduced):
            for loss, metrics in self._losses(part):
                self.accelerator.backward(loss * weight * scale)
                sums["loss"] += metrics.pop("loss", 0.0) * weight
                for name, value in metrics.items():
                    sums[prefix + name] += value
            if self.accelerator.sync_gradients:
                for name, model in models.items():
                    sums[name] += self.clip_gradient(model) / self.accelerator.num_processes
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)

    def _losses(self, part: Part) -> Iterator[tuple[Tensor, dict[str, Tensor]]]:
        """Of the policy and of a value model of its own: one graph after the other."""
        yield self._loss(part)
        if self.value is not None and self.value.network is not None and part.item.values:
            canvas = part.item.batch.rollout.canvas[part.rows]
            yield part.value_loss(self.value(None, canvas, part.passes))

    def _loss(self, part: Part) -> tuple[Tensor, dict[str, Tensor]]:
        """What to go backward from for this part, and its share of the metrics."""
        item, passes, value = part.item, part.passes, part.item.task.algorithm.value
        new, entropy, values = self._score(item, part.rows, passes)
        if part.has_loss:
            loss, metrics = part.loss(new, entropy)
            if value is not None and values is not None:
                value_loss, more = part.value_loss(values)
                loss, metrics = loss + value.vf_coef * value_loss, metrics | more
            metrics["loss"] = loss.detach()
        else:
            loss, metrics = part.gradient_loss(new, lambda: self._score_all(part))
            metrics["entropy"] = entropy.sum() / max(1, item.size.tokens)
        # how far the scored policy (other masks, its own guidance) is from the one that sampled
        gap = (new.detach() - item.batch.rollout.logprobs[part.rows]).abs() * passes.scored
        metrics["sampling/sampling_logp_difference/mean"] = gap.sum() / max(1, item.size.tokens)
        return loss, metrics

    @torch.no_grad()
    def _score_all(self, part: Part) -> Tensor:
        """Log-probs of all passes of a micro-batch under the policy as it is."""
        return self._score(part.item, part.rows, part.item.passes[part.rows]).logprobs

    def _score(
        self, item: Prepared, rows: slice, passes: Passes, seen: Canvas | None = None
    ) -> TokenScores:
        """Scores of some rows; `seen` is the canvas of all, where its images are looked at."""
        algorithm = item.task.algorithm
        canvas = item.batch.rollout.canvas if seen is None else seen
        return score(self.policy, canvas[rows], passes, algorithm.cfg_scale, algorithm.temperature)

    def _micro_batches(self, rows: int) -> list[slice]:
        size = self.micro_batch_size
        return [slice(first, first + size) for first in range(0, rows, size)]

    def _size(self, task: Task, batch: RolloutBatch, passes: Passes) -> BatchSize:
        """Counts over all processes."""
        own = count_batch(batch.rollout, passes, task.algorithm, batch.left_out)
        local = torch.tensor([astuple(own)], device=self.policy.device)
        everyone = torch.as_tensor(self.accelerator.gather(local))
        return BatchSize.over_processes(everyone.tolist())

    def _reduced(self, sums: Mapping[str, Tensor], iterations: int) -> dict[str, float]:
        """Sums of all processes, as means over the inner iterations."""
        names = sorted(sums)
        values = torch.stack([sums[name].float() for name in names])
        total = torch.as_tensor(self.accelerator.reduce(values, "sum")) / iterations
        return dict(zip(names, total.tolist(), strict=True))

    @contextmanager
    def reference(self) -> Iterator[None]:
        """The policy as it was at the start: adapter off, or the frozen copy in its place."""
        if self.frozen is None:
            with adapter_off(self.trained), exchanged(self.policy.network, self.start):
                yield
            return
        trained, self.policy.model = self.policy.model, self.frozen
        try:
            yield
        finally:
            self.policy.model = trained

    def write_model(self, folder: Path) -> None:
        """Write the policy in its public format, the adapter merged into it."""
        state = plain_state(self.policy.network, self.accelerator.is_main_process)
        if self.accelerator.is_main_process:
            self.policy.save(folder, self.config.save_dtype, state)

    def save(self, folder: Path) -> None:
        """Write model and trainer state; `load` continues exactly. Rank 0 writes."""
        super().save(folder)
        if self.value is not None and takes_part(self.accelerator):
            self.value.save(folder, self.accelerator.is_main_process)

    def state(self) -> dict[str, Any]:
        """Trained weights, optimiser and schedule; a value model writes files instead."""
        return {
            "trained": self._trained_tensors(),
            "optimizer": self.optimizer.state_dict(),
            "schedule": self.schedule.state_dict(),
        }

    def restore(self, state: dict[str, Any], checkpoint: Path) -> None:
        """Continue from `state` and from the files of the value model."""
        assign(self._trained_tensors(), state["trained"])
        if self.value is not None:
            self.value.load(checkpoint)
        load_moments(self.optimizer, state["optimizer"])
        self.schedule.load_state_dict(state["schedule"])

    def _trained_tensors(self) -> dict[str, Tensor]:
        value = () if self.value is None else self.value.trained.parameters()
        others = {id(p) for p in value}  # a head on the policy is kept with the value model
        named = self.trained.named_parameters()
        return {name: p.data for name, p in named if p.requires_grad and id(p) not in others}
