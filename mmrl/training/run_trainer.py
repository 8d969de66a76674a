"""What the trainers of `mmrl.rl` and `mmrl.sft` share: clipping, saving, and resuming exactly.

Random draws need no state: every generator is named by the seed and the step.
"""

import json
import logging
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar
from zipfile import ZipFile

import torch
from accelerate import Accelerator
from accelerate.utils import gather_object
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from mmrl.config import ConfigError
from mmrl.models.weights import write_or_defer
from mmrl.run.checkpoint import check_within
from mmrl.run.metric_window import MetricWindow
from mmrl.run.settings_changed import check_unchanged, dump_settings
from mmrl.run_config import RunConfig
from mmrl.runtime.computation import choose_together
from mmrl.runtime.failures import DivergenceError
from mmrl.runtime.launch import any_process
from mmrl.runtime.precision import autocast_forward, compile_blocks
from mmrl.runtime.sharding import build_sharding
from mmrl.runtime.sharding.tensors import held_part
from mmrl.training.trainable import count_parts

logger = logging.getLogger(__name__)
Config = TypeVar("Config", bound=RunConfig)
STATE_FILE = "trainer_state.pt"
MOST_NAMES = 16
"""Prompts that a message lists at most."""


class RunTrainer(ABC, Generic[Config]):
    """Everything of a run that changes from step to step: `step` is the number done, `window` has
    the metrics since the last line of `metrics.jsonl`, `modules` hold the trained parameters, with
    optimisers, each with its schedule. `settings` are those of the run, as given, and `config` the
    same with what the device decides in the place of `auto`; `sharding` is how the processes share
    the model."""

    modules: Sequence[nn.Module]
    optimizers: Sequence[Any]
    schedules: Sequence[Any]

    def __init__(self, config: Config, accelerator: Accelerator, dtype: str = "float32") -> None:
        self.settings, self.accelerator = config, accelerator
        bf16 = choose_together(config.bf16, accelerator, dtype=dtype).bf16
        self.config: Config = config.changed(bf16=bf16)
        half = bf16 and not config.torch_compile
        self.sharding = build_sharding(accelerator, half)
        self.step, self.window = 0, MetricWindow()

    @abstractmethod
    def write_model(self, folder: Path, merge: bool) -> None:
        """Write the model in its public format, with the adapter added to it where `merge`; rank 0
        writes what all gather."""

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """Weights, and all else of `trainer_state.pt` beside optimisers and schedules."""

    @abstractmethod
    def restore(self, state: dict[str, Any]) -> None:
        """Continue from `state`, whose tensors are whole."""

    def step_optimizers(self) -> None:
        """Change the weights by their gradients, which are dropped."""
        for optimizer, schedule in zip(self.optimizers, self.schedules, strict=True):
            optimizer.step()
            schedule.step()
        self.drop_gradients()

    def drop_gradients(self) -> None:
        """Drop the gradients that are there, or a part of them."""
        for optimizer in self.optimizers:
            optimizer.zero_grad(set_to_none=True)

    @property
    def next_rate(self) -> float:
        """Learning rate of the next step."""
        return float(self.schedules[0].get_last_lr()[0])

    def log_trained(self, network: nn.Module) -> None:
        """Log how many parameters of every part of a network are trained."""
        for key, (trained, every) in count_parts(network).items():
            logger.info("trained: %-20s%15s of %15s parameters", key, f"{trained:,}", f"{every:,}")

    def set_precision(self, network: nn.Module) -> None:
        """Let a network compute in the precision of the run, compiled where that is wanted."""
        if self.config.bf16:
            autocast_forward(network, self.accelerator.device)
        if self.config.torch_compile:
            compile_blocks(network)

    def clip_gradients(
        self, models: Mapping[str, nn.Module], losses: Sequence[tuple[Sequence[str], Tensor]]
    ) -> dict[str, Tensor]:
        """Clip the gradients of models to `max_grad_norm` and return their norms before, by the
        same names; all processes call this. `losses`: what each micro-batch of this process was
        about, and its loss. Raises DivergenceError: a norm is not finite; the weights are left as
        they were."""
        limit = self.config.max_grad_norm or float("inf")
        norms = {n: self.sharding.clip_gradient(each, limit) for n, each in models.items()}
        if all(torch.isfinite(norm) for norm in norms.values()):
            return norms
        name, norm = next((n, float(x)) for n, x in norms.items() if not torch.isfinite(x))
        about = describe_nonfinite(losses)
        logger.warning("step %d: %s is %s; %s", self.step + 1, name, norm, about)
        raise DivergenceError(
            f"the gradient of step {self.step + 1} is {norm}; {about}. Lower learning_rate or"
            " max_grad_norm, or raise warmup_steps, and resume from the last checkpoint."
        )

    def save_model(self, folder: Path, merge: bool | None = None) -> None:
        """Write the model in its public format, the whole of an adapter's with `merge`, where None
        follows `merge_adapter`. All processes call this, and rank 0 writes. Raises DivergenceError:
        weights or the state of the optimisers are not finite."""
        # gradients are checked before they are applied, but the step itself may be too long
        bad = next((name for name, tensor in self._saved_tensors() if not _is_finite(tensor)), "")
        if any_process(bool(bad)):
            raise DivergenceError(
                f"after step {self.step} {bad or 'a tensor of another process'} is no longer"
                " finite, and nothing of it is saved. Lower learning_rate or weight_decay, and"
                " resume from the last checkpoint."
            )
        if self.sharding.takes_part:
            self.write_model(folder, self.settings.merge_adapter if merge is None else merge)

    def save(self, folder: Path) -> None:
        """Write model and trainer state; `load` continues exactly. Rank 0 writes.

        Tensors are whole, so a run continues with any number of processes, sharded or not.
        """
        self.save_model(folder, merge=False)
        if self.sharding.takes_part:
            state = {
                "step": self.step,
                "bf16": self.config.bf16,
                "settings": dump_settings(self.settings),
                "window": self.window.state_dict(),
                "optimizers": [optimizer.state_dict() for optimizer in self.optimizers],
                "schedules": [schedule.state_dict() for schedule in self.schedules],
                **self.state(),
            }
            state = self.sharding.gather(state)
            if self.accelerator.is_main_process:
                write_or_defer(partial(torch.save, state, folder / STATE_FILE))

    def load(self, checkpoint: Path, policy: str = "") -> None:
        """Continue from a directory written by `save`, in a checkpoint of several policies that of
        one; all processes call this. Raises ConfigError: it is damaged, beyond the last step,
        belongs to another model or optimiser, or is of a run with other settings."""
        path = checkpoint / policy / STATE_FILE
        with explain_damage(path):
            if not self.sharding.shards:  # which else each process would read whole
                with ZipFile(path) as parts:  # torch.load does not read its check sums
                    if damaged := parts.testzip():
                        raise ValueError(f"{damaged} is not as it was written")
            # mapped where sharded: each process reads its parts of what is as large as all of them
            state = torch.load(
                path, map_location="cpu", weights_only=True, mmap=self.sharding.shards
            )
            step, stored = state["step"], json.loads(state.get("settings", "null"))
            named = int(checkpoint.name) if checkpoint.name.isdigit() else step
            if type(step) is not int or step < 0 or step != named:
                raise ValueError(f"its step is {step!r}, and that of the directory {named!r}")
        check_within(step, self.settings.max_steps, checkpoint)
        check_unchanged(stored, self.settings, self.settings.resume_with_changes)
        with explain_damage(path):
            self.restore(state)
            for optimizer, saved in zip(self.optimizers, state["optimizers"], strict=True):
                self.sharding.load_optimizer(optimizer, saved)
            for schedule, saved in zip(self.schedules, state["schedules"], strict=True):
                schedule.load_state_dict(saved)
            self.window.load_state_dict(state["window"])
        self.step = step
        logger.info("resumed from %s at step %d", checkpoint, step)
        if state.get("bf16") not in (None, self.config.bf16):
            logger.warning("the checkpoint is of a run with bf16=%s", str(state["bf16"]).lower())

    def _saved_tensors(self) -> Iterator[tuple[str, Tensor]]:
        for module in self.modules:
            for name, parameter in module.named_parameters():
                if parameter.requires_grad:
                    yield f"the weight {name}", held_part(parameter)
        for optimizer in self.optimizers:
            for state in optimizer.state.values():
                for name, value in state.items():
                    if isinstance(value, Tensor):
                        yield f"{name} of the optimiser", value


def _is_finite(tensor: Tensor) -> bool:
    local = tensor.to_local() if isinstance(tensor, DTensor) else tensor
    return not local.is_floating_point() or bool(torch.isfinite(local).all())


def describe_nonfinite(losses: Sequence[tuple[Sequence[str], Tensor]]) -> str:
    """Which micro-batches of any process have a loss that is not finite; all processes call this
    with what each of theirs was about, and its loss."""
    bad = [name for names, loss in losses if not torch.isfinite(loss) for name in names]
    found = list(dict.fromkeys(gather_object(bad)))
    if not found:
        return "every loss of it is finite"
    return f"the loss is not finite for {', '.join(found[:MOST_NAMES])}"


@contextmanager
def explain_damage(path: Path) -> Iterator[None]:
    """Turn errors of a damaged or foreign file into a ConfigError that says what it must be."""
    try:
        yield
    except Exception as error:
        raise ConfigError(
            f"'{path}' cannot be resumed from ({type(error).__name__}: {error}). It must be a"
            " complete checkpoint of a run with the same model, objective and optimiser settings."
        ) from error
