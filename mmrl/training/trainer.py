"""The update of an RL run: passes and frozen log-probs, then the optimiser steps of the policy.

Each inner iteration goes through all mini-batches, with an optimiser step for each. What is frozen
(log-probs of the policy that sampled and of the reference, values) is scored before the first.

The gradient of a mini-batch is a sum over parts (`mmrl.training.micro_batches`) whose terms are
already divided by counts of the whole mini-batch, so neither the micro-batch size nor the number of
processes changes it.
"""

import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import astuple, replace
from typing import Any

import torch
from torch import Tensor, nn

from mmrl.algorithms.aggregation import BatchSize
from mmrl.algorithms.contrasts import CONTRASTS
from mmrl.algorithms.loss import count_batch
from mmrl.estimators import draw_passes, score
from mmrl.estimators.condition_dropout import drop_conditions
from mmrl.estimators.highest_entropy import highest_entropy
from mmrl.generation.tokens.scoring.scoring import predict_values
from mmrl.randomness import generator
from mmrl.rollouts.rollout import RolloutBatch
from mmrl.rollouts.tasks import Task
from mmrl.runtime.activity import activity, advance
from mmrl.runtime.interrupt import Interrupted, leave_together
from mmrl.training.engine_mismatch import compare_engines, correct
from mmrl.training.micro_batches import Part, Prepared, split_mini_batches, split_parts
from mmrl.training.trained_policy import TrainedPolicy
from mmrl.types import Canvas, Passes, Scores


class Trainer(TrainedPolicy):
    """The policy of an RL run, and its update on the rollouts of a step."""

    def update(self, batches: Mapping[str, tuple[Task, RolloutBatch]]) -> dict[str, float]:
        """Run all inner iterations on the rollouts of one step; return its metrics.

        A stop leaves it between two micro-batches until the first optimiser step is taken; the
        further ones are then finished, because the weights are between two steps.

        Raises:
            DivergenceError: a gradient is not finite; the weights are left as they were.
            Interrupted: a stop is requested on any process; nothing was changed.
        """
        with self.policy.network.attention(self.config.model.attn_implementation):
            seconds = self.offload(True)
            try:
                metrics = self._update(list(batches.values()))
            except Interrupted:
                self.drop_gradients()
                raise
            finally:
                seconds += self.offload(False)
        return metrics | ({"time/offload_s": seconds} if self.config.offload else {})

    def _update(self, work: list[tuple[Task, RolloutBatch]]) -> dict[str, float]:
        iterations = max(task.algorithm.num_iterations for task, _ in work)
        started = time.perf_counter()
        for task, _ in work:
            task.algorithm.beta = self.betas.get(task.name, task.algorithm.beta)
        plans = [
            [self._prepare(task, part, i) for task, part in parts]
            for i in range(iterations)
            for parts in self._mini_batches(work, i)
        ]
        compared = compare_engines([item for plan in plans for item in plan], self.policy)
        prepared = time.perf_counter()
        sums: dict[str, Tensor] = defaultdict(lambda: torch.zeros((), device=self.policy.device))
        for n, plan in enumerate(plans):
            self._inner_step(plan, sums, leave_together(self.sharding.shards) if n == 0 else None)
        self.step += 1
        every = self.config.ref_model_sync_steps
        done = -(-self.step // self.config.turns) * len(plans)  # of the steps at its turn
        if self.reference_moves and done // every > (done - len(plans)) // every:
            self.sync_reference()
        if self.averaged is not None and self.config.old_policy is not None:
            self.averaged.update(self.config.old_policy.decay(done))
        metrics = self._reduce_metrics(sums, len(plans)) | compared
        metrics["learning_rate"] = self.next_rate
        for task, _ in work:
            if task.algorithm.kl_target is not None:
                prefix = "" if len(work) == 1 else f"{task.name}/"
                metrics[prefix + "beta"] = task.algorithm.beta
                task.algorithm.adapt_beta(metrics[f"{prefix}kl"])
                self.betas[task.name] = task.algorithm.beta
        metrics["time/score_s"] = prepared - started
        metrics["time/update_s"] = time.perf_counter() - prepared
        return metrics

    def _mini_batches(
        self, work: list[tuple[Task, RolloutBatch]], iteration: int
    ) -> Iterator[list[tuple[Task, RolloutBatch]]]:
        """Yield the mini-batches of all tasks, in the order of an inner iteration."""
        number, tasks = self.config.num_mini_batches, [task for task, _ in work]
        parts = []
        for task, batch in work:
            names = self.config.seed, "mini_batches", task.name, self.step, iteration
            size, whole = task.config.num_generations, task.algorithm.group is not None
            parts.append(split_mini_batches(batch, number, size, *names, whole=whole))
        for some in zip(*parts, strict=True):
            yield list(zip(tasks, some, strict=True))

    @torch.no_grad()
    def _prepare(self, task: Task, batch: RolloutBatch, iteration: int) -> Prepared:
        """Draw the passes of an optimiser step, and which rollouts are scored without their prompt;
        score old and reference policy."""
        algorithm, seed = task.algorithm, self.config.seed
        names = [(task.name, self.step, *name, iteration) for name in batch.names]
        contrast = CONTRASTS[algorithm.contrast]
        drawn = [name[:-2] + name[-1:] if contrast.same_noise else name for name in names]
        masks = [generator(seed, "masks", *name) for name in drawn]
        passes = draw_passes(batch.rollout, algorithm, masks, iteration)
        conditions = (generator(seed, "conditions", *name) for name in names)
        canvas = drop_conditions(batch.rollout.canvas, algorithm.cond_dropout_prob, conditions)
        batch = replace(batch, rollout=replace(batch.rollout, canvas=canvas))
        if batch.left_out is not None:
            passes = passes.exclude_rows(batch.left_out.to(self.policy.device))
        passes = self._pad_draws(passes)
        prepared = Prepared(task, batch, passes, self._size(task, batch, passes), iteration)
        engine = task.config.engine if algorithm.old_logprobs == "replay" else None
        needs_old = algorithm.needs_old(self.config.num_mini_batches) or engine is not None
        uncertain = algorithm.top_entropy_quantile < 1
        seen = canvas.freeze(self.policy.model) if uncertain or needs_old else canvas
        if uncertain:
            self._restrict_to_uncertain(prepared, seen)
        with self.reference() if algorithm.needs_reference else nullcontext():
            known = canvas.freeze(self.policy.model) if algorithm.needs_reference else canvas
        for rows in self._scoring_batches(len(batch)):
            some = prepared.passes[rows]
            prepared.old.append(None)
            if algorithm.old_logprobs == "rollout":
                prepared.old[-1] = Scores(batch.rollout.logprobs[rows] * some.scored)
            elif needs_old:  # with a single step old is new without its gradient
                old = self._score(prepared, rows, some, seen)
                prepared.old[-1] = old.reduce(algorithm.reads_latents)
                correct(prepared, rows, old, engine)
            if self.value is not None and algorithm.value is not None:
                shown: Any = batch.rollout.canvas[rows]
                prepared.add_values(rows, predict_values(self.value, shown, some))
            prepared.reference.append(None)
            if algorithm.needs_reference:
                with self.reference():
                    reference = self._score(prepared, rows, some, known)
                prepared.reference[-1] = reference.reduce(algorithm.reads_latents)
        prepared.averaged = self._score_averaged(prepared)
        return prepared

    def _score_averaged(self, item: Prepared) -> list[Scores | None]:
        """The scores under the old policy of contrasts; without one those of the policy that
        sampled. All weights change places twice, however many micro-batches there are."""
        algorithm, canvas = item.task.algorithm, item.batch.rollout.canvas
        if self.averaged is None or not algorithm.reads_averaged:
            return item.old
        with self.averaged.apply():
            seen = canvas.freeze(self.policy.model)
            return [
                self._score(item, rows, item.passes[rows], seen).reduce(algorithm.reads_latents)
                for rows in self._scoring_batches(len(item.batch))
            ]

    def _scoring_batches(self, count: int) -> Iterator[slice]:
        """Yield the micro-batches of `count` rows to score; a stop leaves between two of them."""
        batches = self._micro_batches(count)
        with activity("scoring", len(batches)), leave_together(self.sharding.shards):
            for rows in batches:
                yield rows
                advance()

    def _pad_draws(self, passes: Passes) -> Passes:
        """Pad to as many draws as any process has, where all take part in every forward pass."""
        if not self.sharding.shards:
            return passes
        local = torch.tensor([len(passes)], device=self.policy.device)
        return passes.pad_draws(int(torch.as_tensor(self.accelerator.gather(local)).max()))

    def _restrict_to_uncertain(self, item: Prepared, seen: Canvas) -> None:
        """Keep the tokens of highest entropy under the policy before this update."""
        share = item.task.algorithm.top_entropy_quantile
        kept = []
        for rows in self._scoring_batches(len(item.batch)):
            some = item.passes[rows]
            entropy = self._score(item, rows, some, seen).entropy
            assert entropy is not None, "a method that asks for it is checked with the sampler"
            kept.append(highest_entropy(entropy, some.scored, share))
        item.passes = self._pad_draws(item.passes.restrict_to(torch.cat(kept, 1)))
        item.size = self._size(item.task, item.batch, item.passes)

    def _inner_step(
        self,
        plan: Sequence[Prepared],
        sums: dict[str, Tensor],
        leaving: AbstractContextManager[None] | None,
    ) -> None:
        """One optimiser step on a prepared mini-batch of all tasks, which adds its metrics to
        `sums`; a stop may leave the context `leaving`, or else the step is finished."""
        work: list[Part] = []
        for item in plan:
            self._find_slopes(item)
        # the last part, which all wrapped models take part in, has to ask the value model
        for item in sorted(plan, key=lambda item: item.task.algorithm.value is not None):
            rows = self._micro_batches(len(item.batch))
            work += split_parts(item, rows, self.sharding.shards)
        with activity("update", len(work)):
            losses, alone = [], len(plan) == 1
            # processes may have different numbers of parts, and communicate in the last
            with leaving or nullcontext():
                for part in work[:-1]:
                    losses += self._add_gradient(part, sums, alone)
                    advance()
            losses += self._add_gradient(work[-1], sums, alone, last=True)
            norms = self.clip_gradients(self._clipped_models(), losses)
            self.step_optimizers()
        for name, norm in norms.items():
            sums[name] += norm / self.accelerator.num_processes

    @torch.no_grad()
    def _find_slopes(self, item: Prepared) -> None:
        """The slopes of a loss over groups, by the policy before this optimiser step. No stop
        leaves here: an earlier step may have been taken."""
        algorithm, found = item.task.algorithm, []
        if not algorithm.measures_groups(self.config.num_mini_batches):
            return
        for m, rows in enumerate(self._micro_batches(len(item.batch))):
            part = Part(item, m, rows, slice(None))
            found.append(part.measure(self._score(item, rows, part.passes)))
        size = item.task.config.num_generations
        group, advantages = algorithm.group, item.batch.advantages
        assert group is not None, "it is measured"
        item.slopes = group.slopes(torch.cat(found, 1), advantages, size, algorithm)

    def _clipped_models(self) -> dict[str, nn.Module]:
        """What gradients are clipped of, by the name of its norm."""
        models = {"grad_norm": self.policy.model}
        if self.value is not None:
            models["val/grad_norm"] = self.value
        return models

    def _add_gradient(
        self, part: Part, sums: dict[str, Tensor], alone: bool, last: bool = False
    ) -> list[tuple[list[str], Tensor]]:
        """Add the gradient of a part, which the last one reduces over the processes, and its
        metrics; return its prompts with each of its losses."""
        weight, found = part.item.task.config.weight, []
        prefix = "" if alone else f"{part.item.task.name}/"
        # undoes the mean over processes: the terms are shares of a sum
        scale = weight * self.accelerator.num_processes
        models = list(self._clipped_models().values())
        with self.sharding.accumulate(models, last):
            # the value model has no loss in tasks without values
            for model, (loss, metrics) in zip(models, self._losses(part), strict=False):
                self.sharding.backward(loss * scale, model)
                found.append((part.prompts, loss.detach()))
                sums["loss"] += metrics.pop("loss", 0.0) * weight
                for name, value in metrics.items():
                    sums[prefix + name] += value
        return found

    def _losses(self, part: Part) -> Iterator[tuple[Tensor, dict[str, Tensor]]]:
        """The loss of the policy, then that of the value model, graph by graph."""
        yield self._loss(part)
        if self.value is not None and part.item.values:
            canvas: Any = part.item.batch.rollout.canvas[part.rows]
            yield part.value_loss(predict_values(self.value, canvas, part.passes))

    def _loss(self, part: Part) -> tuple[Tensor, dict[str, Tensor]]:
        """Return what to call backward on for this part, and its share of the metrics."""
        item, passes = part.item, part.passes
        new = self._score(item, part.rows, passes)
        finished = new.finished
        rewards = None if finished is None else part.differentiate(self.policy, finished)
        loss, metrics = part.loss(new, rewards)
        metrics["loss"] = loss.detach()
        if new.prediction is not None:  # which is of no action of the sampler
            return loss, metrics
        # how far the scored policy (other masks, its own guidance) is from the one that sampled
        recorded = item.batch.rollout.logprobs[part.rows]
        gap = (new.logprobs.detach() - recorded).abs() * passes.scored
        metrics["sampling/sampling_logp_difference/mean"] = gap.sum() / max(1, item.size.tokens)
        return loss, metrics

    def _score(
        self, item: Prepared, rows: slice, passes: Passes, seen: Canvas | None = None
    ) -> Scores:
        """Score some rows; `seen` is the canvas of all rows, with its images encoded."""
        algorithm = item.task.algorithm
        canvas = item.batch.rollout.canvas if seen is None else seen
        scales = algorithm.guidance
        return score(
            self.policy, canvas[rows], passes, scales.text, algorithm.temperature, scales.image
        )

    def _micro_batches(self, rows: int) -> list[slice]:
        size = self.micro_batch_size
        return [slice(first, first + size) for first in range(0, rows, size)]

    def _size(self, task: Task, batch: RolloutBatch, passes: Passes) -> BatchSize:
        """Count a mini-batch over all processes."""
        own = count_batch(batch.rollout, passes, task.algorithm, batch.left_out)
        local = torch.tensor([astuple(own)], device=self.policy.device)
        everyone = torch.as_tensor(self.accelerator.gather(local))
        return BatchSize.over_processes(everyone.tolist())

    def _reduce_metrics(self, sums: Mapping[str, Tensor], steps: int) -> dict[str, float]:
        """Add the sums of all processes, and average them over the optimiser steps."""
        names = sorted(sums)
        values = torch.stack([sums[name].float() for name in names])
        total = torch.as_tensor(self.accelerator.reduce(values, "sum")) / steps
        return dict(zip(names, total.tolist(), strict=True))
