"""Weights, optimisers, schedules and averages of a supervised run: one step, saving, loading."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from accelerate import Accelerator
from accelerate.utils import send_to_device
from torch import Tensor

from mmrl.objectives.objective import Objective
from mmrl.run.metric_window import MetricWindow
from mmrl.run.settings_changed import dump_settings
from mmrl.run_config import build_schedule
from mmrl.runtime.activity import activity, advance
from mmrl.runtime.compilation import compile_blocks
from mmrl.runtime.computation import follow_device
from mmrl.runtime.divergence import DivergenceError
from mmrl.runtime.finiteness import check_finite, moments
from mmrl.runtime.interrupt import Interrupted, leaving_together
from mmrl.runtime.launch import is_sharded, takes_part
from mmrl.runtime.precision import autocast_forward, warn_of_change
from mmrl.runtime.sharding import (
    keeping_pace,
    like,
    load_moments,
    prepare,
    shard,
    stored_as,
    whole,
)
from mmrl.training.ema import ExponentialAverage
from mmrl.training.optimizers import build_optimizers
from mmrl.training.trainable import trained_counts
from mmrl.training.trainer_state import load_state, resuming

if TYPE_CHECKING:
    from mmrl.sft_config import SFTConfig

logger = logging.getLogger(__name__)
STATE_NAME = "trainer_state.pt"


class SupervisedTrainer:
    """Everything of a run that changes from step to step."""

    def __init__(self, config: SFTConfig, objective: Objective, accelerator: Accelerator) -> None:
        self.settings = config
        config = follow_device(config, accelerator)
        self.config, self.objective, self.accelerator = config, objective, accelerator
        self.sharded = is_sharded(accelerator)
        self.network = objective.module.to(accelerator.device)
        for line in trained_counts(self.network):
            logger.info("trained: %s", line)
        if config.bf16:
            autocast_forward(self.network, accelerator.device)
        if config.torch_compile:
            compile_blocks(self.network)
        shard(self.network, accelerator)
        optimizers = build_optimizers(self.network, config)
        self.schedules = [build_schedule(one, config, config.max_steps) for one in optimizers]
        objective.module, self.optimizers = prepare(accelerator, self.network, optimizers)
        self.ema = ExponentialAverage(self.network, config.ema_decay) if config.ema_decay else None
        self.window = MetricWindow()
        self.step = 0

    def train_step(self) -> float:
        """Run one optimiser step and add its metrics to the window.

        Returns:
            The mean loss of the step over all ranks.

        Raises:
            DivergenceError: the gradient is not finite; the weights are left as they were.
            Interrupted: a stop is requested on any rank; nothing was changed.
        """
        started = time.perf_counter()
        self.network.train()
        try:
            found = self._add_gradients()
        except Interrupted:
            for optimizer in self.optimizers:
                optimizer.zero_grad(set_to_none=True)
            raise
        for metrics in found:
            self.window.add(metrics)
        norm = self._clip()
        for optimizer, schedule in zip(self.optimizers, self.schedules, strict=True):
            optimizer.step()
            schedule.step()
            optimizer.zero_grad(set_to_none=True)
        if self.ema is not None:
            self.ema.update()
        self.step += 1
        self.window.add({"grad_norm": norm, "time/step_s": time.perf_counter() - started})
        losses = torch.stack([metrics["loss"] for metrics in found])
        return float(losses.mean())  # no wait: the norm has been looked at already

    def _add_gradients(self) -> list[dict[str, Tensor]]:
        """Go backward from every micro-batch of a step; return their metrics."""
        found, accumulation = [], self.config.gradient_accumulation_steps
        with activity("micro-batch", accumulation), leaving_together(in_step=True):
            for micro in range(accumulation):
                reduced = self.sharded or micro == accumulation - 1
                with nullcontext() if reduced else self.accelerator.no_sync(self.objective.module):
                    loss, metrics = self.objective.loss(self._batch(micro))
                    self.accelerator.backward(loss / accumulation)
                found.append(self._mean_over_ranks({"loss": loss.detach(), **metrics}))
                if micro < accumulation - 1:  # at the end it may be left anyway
                    advance()
        return found

    def take_metrics(self) -> dict[str, float]:
        """Return the means since the last call and the learning rate of the next step."""
        rate = float(self.schedules[0].get_last_lr()[0])
        return {**self.window.take(), "learning_rate": rate}

    @torch.no_grad()
    def evaluate(self, folder: Path) -> dict[str, float]:
        """Return the objective's metrics of the weights that would be saved; empty off rank 0.

        Raises:
            Interrupted: a stop is requested on any rank.
        """
        metrics: dict[str, float] = {}
        self.network.eval()
        averaged, pace = self._saved_weights(), self._keeping_pace()
        with activity("evaluating"), averaged, leaving_together(), pace:
            if self.accelerator.is_main_process:
                metrics = self.objective.evaluate(folder, self.step)
        return metrics

    def save_model(self, folder: Path) -> None:
        """Write the model in its public format, averaged if there is an average. Rank 0 writes.

        Raises:
            DivergenceError: weights or the state of the optimisers are not finite.
        """
        check_finite(self.step, self._kept())
        main = self.accelerator.is_main_process
        if takes_part(self.accelerator):
            with self._saved_weights():
                state = whole(self.network.state_dict(), main)
                if main:
                    with stored_as(self.network, state):
                        self.objective.save(folder)

    def save(self, folder: Path) -> None:
        """Write the model and everything needed to continue exactly. Rank 0 writes."""
        self.save_model(folder)
        if takes_part(self.accelerator):
            state = whole(self._state(), self.accelerator.is_main_process)
            if self.accelerator.is_main_process:
                torch.save(state, folder / STATE_NAME)

    def load(self, checkpoint: Path) -> None:
        """Continue from a directory written by `save`.

        Raises:
            ConfigError: it is not such a directory, it is damaged, or it belongs to another model
                or another optimiser.
        """
        state = load_state(self, checkpoint, STATE_NAME)
        with resuming(checkpoint / STATE_NAME):
            own = self.network.state_dict()
            parts = {n: like(t, own[n]) if n in own else t for n, t in state["network"].items()}
            self.network.load_state_dict(parts)
            for optimizer, saved in zip(self.optimizers, state["optimizers"], strict=True):
                load_moments(optimizer, saved)
            for schedule, saved in zip(self.schedules, state["schedules"], strict=True):
                schedule.load_state_dict(saved)
            self.window.load_state_dict(state["window"])
            if self.ema is not None:
                self.ema.load_state_dict(state["ema"])
        self.step = state["step"]
        logger.info("resumed from %s", checkpoint)
        warn_of_change(state.get("bf16"), bool(self.config.bf16))

    def any_rank(self, flag: bool) -> bool:
        """Whether the flag is set on any rank, so that all ranks stop at the same step."""
        if self.accelerator.num_processes == 1:
            return flag
        value = torch.tensor([float(flag)], device=self.accelerator.device)
        flags = self.accelerator.gather(value)
        return bool(torch.as_tensor(flags).any())

    def summary(self) -> str:
        """Return what is trained, for the log."""
        trained = sum(p.numel() for p in self.network.parameters() if p.requires_grad)
        total = sum(p.numel() for p in self.network.parameters())
        return f"training {trained:,} of {total:,} parameters on {self.accelerator.device}"

    def _batch(self, micro: int) -> Any:
        index = self.step * self.config.gradient_accumulation_steps + micro
        with torch.no_grad():
            batch = self.objective.batch(
                index, self.accelerator.process_index, self.accelerator.num_processes
            )
        return send_to_device(batch, self.accelerator.device)

    def _mean_over_ranks(self, metrics: dict[str, Tensor]) -> dict[str, Tensor]:
        if self.accelerator.num_processes == 1:
            return metrics
        values = torch.stack([value.detach().float() for value in metrics.values()])
        return dict(zip(metrics, self.accelerator.reduce(values, "mean"), strict=True))

    def _clip(self) -> Tensor:
        limit = self.config.max_grad_norm or float("inf")
        norm = whole(torch.nn.utils.clip_grad_norm_(self.network.parameters(), limit))
        if not torch.isfinite(norm):
            raise DivergenceError(
                f"The gradient of step {self.step + 1} is {float(norm)}. Lower learning_rate or "
                "max_grad_norm, or raise warmup_steps, and resume from an earlier checkpoint."
            )
        return norm

    def _kept(self) -> Iterator[tuple[str, Tensor]]:
        """The weights, and what the optimisers know of them."""
        for name, parameter in self.network.named_parameters():
            yield f"the weight {name}", parameter.data
        for optimizer in self.optimizers:
            yield from moments(optimizer)

    def _saved_weights(self) -> Any:
        return nullcontext() if self.ema is None else self.ema.applied()

    def _keeping_pace(self) -> Any:
        return keeping_pace(self.network) if self.sharded else nullcontext()

    def _state(self) -> dict[str, Any]:
        return {
            "step": self.step,
            "bf16": self.config.bf16,
            "settings": dump_settings(self.settings),
            "network": self.network.state_dict(),
            "optimizers": [optimizer.state_dict() for optimizer in self.optimizers],
            "schedules": [schedule.state_dict() for schedule in self.schedules],
            "ema": None if self.ema is None else self.ema.state_dict(),
            "window": self.window.state_dict(),
        }
