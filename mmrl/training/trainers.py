"""The trainers of the policies of a run: updated together or in turn, saved side by side."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path

import torch
from accelerate import Accelerator

from mmrl.config import check
from mmrl.models import Policy
from mmrl.models.policy import load_policy
from mmrl.pretrained.model_config import policy_options
from mmrl.rl_config import RLConfig
from mmrl.rollouts.rollout import RolloutBatch
from mmrl.rollouts.tasks import Task
from mmrl.runtime.sharding import build_sharding
from mmrl.training.engine_weights import connect_engine
from mmrl.training.trainer import Trainer


def load_policies(config: RLConfig, accelerator: Accelerator) -> dict[str, Policy]:
    """The policies of a run by name. Raises ConfigError: processes share the weights of several."""
    deferred = build_sharding(accelerator).gathers
    allowed = "a single policy where processes share the weights"
    check(not (deferred and config.models), "models", list(config.models), allowed)
    device = accelerator.device
    return {
        name: load_policy(**policy_options(run.model), device=device, deferred=deferred)
        for name, run in config.runs.items()
    }


class Trainers:
    """The trainers of a run, which looks like that of a single policy.

    Args:
        config: of the run.
        runs: the settings of each policy, see `RLConfig.runs`, with their batch sizes.
        policies: by the same names; those that are frozen get no trainer.

    Attributes:
        trainers: by the names of their policies, each the folder in a checkpoint; "" is the
            checkpoint itself.
        window: metrics since the last line of `metrics.jsonl`.
    """

    def __init__(
        self,
        config: RLConfig,
        runs: Mapping[str, RLConfig],
        policies: Mapping[str, Policy],
        accelerator: Accelerator,
    ) -> None:
        self.settings, self.accelerator, self.policies = config, accelerator, policies
        self.trainers: dict[str, Trainer] = {}
        for name, run in runs.items():
            if run.frozen:
                policies[name].model.requires_grad_(False).eval()
            else:
                self.trainers[name] = Trainer(run, policies[name], accelerator)
        self.first = next(iter(self.trainers.values()))
        self.window = self.first.window

    @property
    def step(self) -> int:
        """Steps done."""
        return self.first.step

    def lend(self, tasks: Iterable[Task]) -> None:
        """Let tasks sample with the old policy or by an engine, where their settings say so, and
        alone on the device where that is wanted. Raises EngineError: see `open_engine`."""
        for task in tasks:
            name = task.config.policy
            task.acting = partial(self._acting, name, task.config.sample_with)
            task.last_step = self.settings.max_steps - 1
            if task.config.engines and self.policies[name].engine is None:
                engine = task.config.engines[0]
                connect_engine(self.policies[name], engine, self.trainers.get(name))

    def close(self) -> None:
        """End the engines of the policies."""
        for policy in self.policies.values():
            if policy.engine is not None:
                policy.engine.close()

    def update(
        self, tasks: Mapping[str, Task], batches: Mapping[str, RolloutBatch]
    ) -> dict[str, float]:
        """Update each policy on the rollouts of its tasks, see `Trainer.update`; metrics of several
        have their names before them."""
        turn, metrics = self.step % len(self.trainers), dict[str, float]()
        for n, (name, trainer) in enumerate(self.trainers.items()):
            own = {
                key: (tasks[key], batches[key]) for key in tasks if tasks[key].config.policy == name
            }
            if self.settings.updates == "in_turn" and n != turn:
                trainer.step += 1
                continue
            with self._alone(name):
                found = trainer.update(own)
            self.policies[name].version = trainer.step
            prefix = f"{name}/" if len(self.trainers) > 1 else ""
            metrics |= {prefix + key: value for key, value in found.items()}
        return {"learning_rate": self.first.next_rate, **metrics}

    @contextmanager
    def _acting(self, name: str, writer: str) -> Iterator[None]:
        """A policy at its turn, or with the writer `old` the old one in its place."""
        trainer = self.trainers.get(name)
        averaged = None if trainer is None or writer == "policy" else trainer.averaged
        with self._alone(name), nullcontext() if averaged is None else averaged.apply():
            yield

    @contextmanager
    def _alone(self, name: str) -> Iterator[None]:
        """The other policies in the memory of the host, where that is wanted."""
        others = [each for key, each in self.policies.items() if key != name]
        moved = others if self.settings.offload else []
        device = self.accelerator.device
        for policy in moved:
            policy.network.to("cpu")
        if moved and torch.accelerator.is_available():
            torch.accelerator.memory.empty_cache()
        try:
            yield
        finally:
            for policy in moved:
                policy.network.to(device)

    def take_metrics(self) -> dict[str, float]:
        """Return the means since the last call."""
        return self.window.take()

    def save_model(self, folder: Path, merge: bool | None = None) -> None:
        """See `RunTrainer.save_model`; each policy in its folder."""
        for name, trainer in self.trainers.items():
            trainer.save_model(self._folder(folder, name), merge)

    def save(self, folder: Path) -> None:
        """See `RunTrainer.save`; each policy in its folder."""
        for name, trainer in self.trainers.items():
            trainer.save(self._folder(folder, name))

    def load(self, checkpoint: Path) -> None:
        """See `RunTrainer.load`."""
        for name, trainer in self.trainers.items():
            trainer.load(checkpoint, name)
            self.policies[name].version = trainer.step

    def _folder(self, folder: Path, name: str) -> Path:
        path = folder / name
        if self.accelerator.is_main_process:
            path.mkdir(parents=True, exist_ok=True)
        return path
