"""One RL step of `mmrl.rl` that can be repeated: its policy, its trainer, and what it takes.

The learning rate is so small that the weights stay: every repeat samples the same canvases and
takes the same update.
"""

import resource
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from matmul_rate import synchronize
from phase_times import PhaseTimes
from straightforward import EverythingEverywhere
from torch import Tensor

from mmrl.models import load_policy
from mmrl.models.network.flops import Adapter, PassSize, count_backward, count_forward, measure_pass
from mmrl.pretrained.model_config import policy_options
from mmrl.rl_config import RLConfig
from mmrl.rollouts.rollout import sample_groups, score_groups
from mmrl.rollouts.tasks import Task
from mmrl.runtime.activity import watch
from mmrl.training.trainer import Trainer
from mmrl.types import Sample

PHASES = ("rollout", "scoring", "update")
"""Phases that call the network."""


def checksum(samples: list[Sample]) -> list[float]:
    """A reward that takes no time and differs between completions."""
    texts = (
        sample.completion.encode()
        if isinstance(sample.completion, str)
        else sample.completion.tobytes()
        for sample in samples
    )
    return [zlib.crc32(text) / 2**32 for text in texts]


@dataclass
class Passes:
    """Forward passes of a phase, their summed size, and operations with those of going backward."""

    calls: int = 0
    sizes: list[PassSize] = field(default_factory=list)
    flops: float = 0.0

    @property
    def mean(self) -> PassSize:
        """The mean size."""
        return PassSize(
            *(sum(each) / self.calls for each in zip(*(s[:4] for s in self.sizes), strict=True)),
            columns=self.sizes[0].columns,
        )


@dataclass
class Result:
    """What a step took and gave: `phases` in seconds, `peak_mb`, and what two ways agree on."""

    seconds: float
    phases: dict[str, float]
    peak_mb: float
    tokens: Tensor
    metrics: dict[str, float]


class StepRun:
    """A step of a run with one task, on this process.

    Args:
        config: of the run.
        cpu: whether to leave an accelerator alone.
        clock: gives seconds.
    """

    def __init__(self, config: RLConfig, cpu: bool, clock: Callable[[], float]) -> None:
        self.config, self.clock = config, clock
        self.accelerator = Accelerator(cpu=cpu, mixed_precision="no")
        [(name, options)] = config.tasks.items()
        self.task = Task(name, options)
        self.task.build_rewards()
        self.policy = load_policy(
            **policy_options(config.model), device=str(self.accelerator.device)
        )
        self.trainer = Trainer(config, self.policy, self.accelerator)
        self.model, self.spent = self.policy.model, 0.0
        self.can_reduce = self.policy.network.can_reduce
        self.policy.canvas = self._timed(self.policy.canvas)  # type: ignore[method-assign]
        self.policy.decode = self._timed(self.policy.decode)  # type: ignore[method-assign]

    @property
    def rollouts(self) -> int:
        """Rollouts of the step, over all processes."""
        return self.task.rollouts_per_step

    def run(self, straightforward: bool = False) -> Result:
        """Take the step."""
        reset_peak(self.accelerator.device)
        self.policy.model = self.model
        # without it all logits exist at once
        self.policy.network.can_reduce = not straightforward and self.can_reduce  # type: ignore[misc]
        if straightforward:
            self.policy.model = EverythingEverywhere(self.model, self._padding())
        device, self.spent = self.accelerator.device, 0.0
        times = PhaseTimes(lambda: synchronize(device), self.clock)
        self.trainer.step = 0
        self.accelerator.wait_for_everyone()
        started = self.clock()
        rank, world_size = self.accelerator.process_index, self.accelerator.num_processes
        with watch(times.measure):
            groups = sample_groups(self.task, self.policy, 0, self.config.seed, rank, world_size)
            batch = score_groups(groups)
            metrics = self.trainer.update({self.task.name: (self.task, batch)})
        synchronize(self.accelerator.device)
        self.accelerator.wait_for_everyone()
        seconds = self.clock() - started
        self.policy.model = self.model
        phases = dict(times.seconds)
        phases["rollout"] -= self.spent
        # images in prompts and completions, and texts
        phases["encoding and decoding"] = self.spent
        phases["other"] = seconds - sum(phases.values())
        canvas = batch.rollout.canvas
        tokens = canvas.tokens[canvas.response].cpu()
        return Result(seconds, phases, peak_mb(self.accelerator.device), tokens, metrics)

    def count(self) -> dict[str, Passes]:
        """Take the step and count the operations that each phase cannot do without."""
        found = {phase: Passes() for phase in PHASES}
        times, network = PhaseTimes(), self.policy.network
        lora = self.config.model.lora
        adapter = None if lora is None else Adapter(lora.r, lora.target_modules)

        def note(_: Any, __: Any, arguments: dict[str, Any]) -> None:
            phase, core = times.open or "", network.core
            if phase not in found:
                return
            trained = torch.is_grad_enabled()
            if phase == "update" and not trained:
                return  # computed again to save memory
            size, own = measure_pass(core, **arguments), found[phase]
            own.calls += 1
            own.sizes.append(size)
            # without gradient an adapter could be part of the weights
            own.flops += count_forward(core, size, adapter if trained else None)
            own.flops += count_backward(core, size, adapter) if trained else 0

        networks = [each for each in (network, self.trainer.frozen) if each is not None]
        hooks = [each.register_forward_pre_hook(note, with_kwargs=True) for each in networks]
        with watch(times.measure):
            self.run()
        for hook in hooks:
            hook.remove()
        return {phase: own for phase, own in found.items() if own.calls}

    def _padding(self) -> int:
        """Columns that a row lacks for the longest prompt of an image, with the frame before it."""
        if self.task.config.task != "text_to_image" or self.config.model.mask_policy == "ignore":
            return 0
        prompts = self.task.step_prompts(0, self.config.seed)
        first = int(self.policy.canvas(prompts).response[0].byte().argmax())
        return max(0, self.config.model.max_prompt_length + 1 - first)

    def _timed(self, work: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any, **kwargs: Any) -> Any:
            synchronize(self.accelerator.device)
            started = self.clock()
            found = work(*args, **kwargs)
            synchronize(self.accelerator.device)
            self.spent += self.clock() - started
            return found

        return timed


def reset_peak(device: torch.device) -> None:
    """Forget the most memory that was used so far."""
    clear = Path("/proc/self/clear_refs")
    if device.type != "cpu":
        torch.accelerator.reset_peak_memory_stats()
    elif clear.exists():
        clear.write_text("5")


def peak_mb(device: torch.device) -> float:
    """The most memory that was used since, in MB: of the device, or resident in this process."""
    if device.type != "cpu":
        return torch.accelerator.max_memory_allocated() / 2**20
    status = Path("/proc/self/status")
    lines = status.read_text().splitlines() if status.exists() else []
    peaks = [int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM")]
    return peaks[0] if peaks else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
