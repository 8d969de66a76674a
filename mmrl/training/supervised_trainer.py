"""Weights, optimisers, schedules and averages of a supervised run: one step, saving, loading."""

import logging
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import send_to_device
from torch import Tensor

from mmrl.models.policy import merge_directory
from mmrl.objectives.objective import Objective
from mmrl.run_config import build_schedule
from mmrl.runtime.activity import activity, advance
from mmrl.runtime.interrupt import Interrupted, leave_together
from mmrl.runtime.precision import widen
from mmrl.runtime.sharding.sampling import keep_pace
from mmrl.runtime.sharding.tensors import use_state
from mmrl.sft_config import SFTConfig
from mmrl.training.ema import ExponentialAverage
from mmrl.training.optimizers import build_optimizers
from mmrl.training.run_trainer import RunTrainer

logger = logging.getLogger(__name__)


class SupervisedTrainer(RunTrainer[SFTConfig]):
    """The network of an objective with its optimisers, schedules and average."""

    def __init__(self, config: SFTConfig, objective: Objective, accelerator: Accelerator) -> None:
        super().__init__(config, accelerator)
        config, self.objective = self.config, objective
        self.network = objective.module
        if getattr(self.network, "stored", None) is None:  # or else it is read when it is sharded
            self.network.to(accelerator.device)
        widen(self.network, everything=not self.config.bf16)
        self.log_trained(self.network)
        self.modules = [self.network]
        self.set_precision(self.network)
        self.sharding.shard(self.network)
        optimizers = build_optimizers(self.network, config)
        self.schedules = [build_schedule(one, config, config.max_steps) for one in optimizers]
        [objective.module], self.optimizers = self.sharding.prepare(self.modules, optimizers)
        self.ema = ExponentialAverage(self.network, config.ema_decay) if config.ema_decay else None

    def train_step(self) -> float:
        """Run one optimiser step and add its metrics to the window; return its mean loss over all
        ranks.

        Raises:
            DivergenceError: the gradient is not finite; the weights are left as they were.
            Interrupted: a stop is requested on any rank; nothing was changed.
        """
        started = time.perf_counter()
        self.network.train()
        try:
            found = self._add_gradients()
        except Interrupted:
            self.drop_gradients()
            raise
        first = self.step * len(found)
        named = [([f"micro-batch {first + n}"], each["loss"]) for n, each in enumerate(found)]
        norms = self.clip_gradients({"grad_norm": self.network}, named)
        self.step_optimizers()
        if self.ema is not None:
            self.ema.update()
        self.step += 1
        for metrics in (*found, norms, {"time/step_s": time.perf_counter() - started}):
            self.window.add(metrics)
        losses = torch.stack([metrics["loss"] for metrics in found])
        return float(losses.mean())  # no wait: the norm has been read already

    def _add_gradients(self) -> list[dict[str, Tensor]]:
        """Go backward from every micro-batch of a step; return their metrics."""
        found, accumulation = [], self.config.gradient_accumulation_steps
        with activity("micro-batch", accumulation), leave_together(in_step=True):
            for micro in range(accumulation):
                last = micro == accumulation - 1
                with self.sharding.accumulate([self.objective.module], last):
                    batch = self._batch(micro)
                    loss, metrics = self.objective.loss(batch)
                    self.sharding.backward(loss / accumulation, self.objective.module)
                found.append(self._mean_over_ranks({"loss": loss.detach(), **metrics}))
                if not last:  # at the end it may be left anyway
                    advance()
        return found

    def take_metrics(self) -> dict[str, float]:
        """Return the means since the last call and the learning rate of the next step."""
        return {**self.window.take(), "learning_rate": self.next_rate}

    @torch.no_grad()
    def evaluate(self, folder: Path) -> dict[str, float]:
        """Return the objective's metrics of the weights that would be saved; empty off rank 0.
        Raises Interrupted: a stop is requested on any rank."""
        metrics: dict[str, float] = {}
        self.network.eval()
        averaged = self._saved_weights()
        shared, device = self.sharding.gathers, self.accelerator.device
        pace = keep_pace(self.network, device) if shared else nullcontext()
        with activity("evaluating"), averaged, leave_together(), pace:
            if self.accelerator.is_main_process:
                metrics = self.objective.evaluate(folder, self.step)
        return metrics

    def write_model(self, folder: Path, merge: bool) -> None:
        """Write the model in its public format, averaged if there is an average, or its adapter."""
        with self._saved_weights():
            state = self.sharding.gather(self.sharding.weights(self.network))
            if self.accelerator.is_main_process:
                with use_state(self.network, state):
                    self.objective.save(folder)
                if merge:
                    merge_directory(folder, self.objective.config.save_dtype)  # type: ignore[attr-defined]

    def state(self) -> dict[str, Any]:
        """Trained weights, their average, and the place in the data."""
        return {
            "data": getattr(self.objective, "data_state", dict)(),
            "network": self._trained_tensors(),
            "ema": None if self.ema is None else self.ema.state_dict(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from `state`. What is not trained is as the objective loaded it."""
        self.sharding.assign(self._trained_tensors(), state["network"])
        if self.ema is not None:
            self.ema.load_state_dict(state["ema"])
        if state.get("data"):
            self.objective.load_data_state(state["data"])  # type: ignore[attr-defined]

    def _trained_tensors(self) -> dict[str, Tensor]:
        named = self.network.named_parameters(remove_duplicate=False)
        frozen = {name for name, parameter in named if not parameter.requires_grad}
        weights = self.sharding.weights(self.network)
        return {name: value for name, value in weights.items() if name not in frozen}

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

    def _saved_weights(self) -> Any:
        return nullcontext() if self.ema is None else self.ema.apply()
