"""A whole RL step by phase: seconds, tokens per second, and the share of the machine's rate.

    python scripts/bench/step.py run=configs/rl/quickstart.yaml repeats=2
    accelerate launch --config_file configs/accelerate/cpu2.yaml scripts/bench/step.py

The step is that of `mmrl.rl`, with a checksum in the place of the rewards and a learning rate so
small that every repeat samples and learns the same; encoding and decoding of images belong to the
rollout. `mfu`: operations per second in the layers of the blocks and the head, without attention
and what is computed again, as a share of those of matrix products of the same shapes and precision,
timed alone. One JSON line, of the first process.
"""

import os
import sys
import zlib
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any

from mmrl.config.command import Usage, read_settings


@dataclass(kw_only=True)
class Setting:
    """What is measured; `key=value` on the command line changes it."""

    run: str = "configs/rl/quickstart.yaml"
    """RL configuration of one task."""
    options: list[str] = field(default_factory=list)
    """Further settings of the run, `key=value` each."""
    repeats: int = 2
    """The fastest of so many steps, after one whose operations are counted."""


if __name__ == "__main__":  # before the seconds that torch takes
    SETTING = read_settings(Usage("python scripts/bench/step.py", __doc__, Setting), sys.argv[1:])

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from text_sampling import fastest, now, report  # noqa: E402

from mmrl.config import load_config  # noqa: E402
from mmrl.models import load_policy  # noqa: E402
from mmrl.pretrained.model_config import policy_options  # noqa: E402
from mmrl.rl_config import RLConfig  # noqa: E402
from mmrl.rollouts.rollout import sample_groups, score_groups  # noqa: E402
from mmrl.rollouts.tasks import Task  # noqa: E402
from mmrl.runtime.launch import join_processes  # noqa: E402
from mmrl.training.trainer import Trainer  # noqa: E402


def list_products(network: Any, tokens: int, wanted: int, columns: int) -> list[Any]:
    """Rows, inputs and outputs of the matrix products of a forward pass; the last block computes
    all but keys and values at the wanted positions alone."""
    last, products = f"{len(network.blocks) - 1}.", [(wanted, network.width, columns)]
    for name, layer in network.blocks.named_modules():
        if isinstance(layer, torch.nn.Linear):
            rows = wanted if name.startswith(last) and name.split(".")[2] not in "kv" else tokens
            products.append((rows, layer.in_features, layer.out_features))
    return products


def matmul_rate(products: list[Any], like: torch.Tensor) -> float:
    """Operations per second of matrix products, one after the other."""
    work = seconds = 0.0
    for (rows, inputs, outputs), number in Counter(products).items():
        x, weight = like.new_ones(rows, inputs), like.new_ones(outputs, inputs)
        work += number * 2 * rows * weight.numel()
        seconds += number * fastest(lambda x=x, weight=weight: F.linear(x, weight), 5)[0]
    return work / seconds


def checksum(samples: list[Any]) -> list[float]:
    """A reward that takes no time and differs between completions."""
    written = (sample.completion for sample in samples)
    data = (each.encode() if isinstance(each, str) else each.tobytes() for each in written)
    return [zlib.crc32(each) / 2**32 for each in data]


class StepRun:
    """A step of a run that can be repeated."""

    def __init__(self, s: Setting) -> None:
        words = [f"config={s.run}", *s.options, "learning_rate=1e-12", "max_steps=1000"]
        self.accelerator, config = join_processes(), load_config(RLConfig, words)
        model = config.model
        [(name, options)] = config.tasks.items()
        options.rewards = [{"name": "checksum", "reward": checksum}]
        self.task = Task(name, options)
        self.task.build_rewards()
        self.policy: Any = load_policy(**policy_options(model), device=self.accelerator.device)
        self.trainer = Trainer(config, self.policy, self.accelerator)
        self.config = self.trainer.config
        for network in filter(None, (self.policy.network, self.trainer.frozen)):
            network.register_forward_pre_hook(self._note, with_kwargs=True)
        self.work: dict[str, list[tuple[int, ...]]] = defaultdict(list)
        self.counts, self.phase, self.updates, self.tokens = True, "", 0.0, 0

    def run(self) -> dict[str, float]:
        """Take the step; its seconds by phase. The first time counts its operations."""
        self.phase, self.trainer.step = "rollout", 0
        self.accelerator.wait_for_everyone()
        place, started = (self.accelerator.process_index, self.accelerator.num_processes), now()
        groups = sample_groups(self.task, self.policy, 0, self.config.seed, *place)
        sampled, batch = now(), score_groups(groups)
        self.phase, scored = "scoring", now()
        self.trainer.update({self.task.name: (self.task, batch)})
        ended, self.counts = now(), False
        self.tokens = int(batch.rollout.canvas.response.sum()) * self.accelerator.num_processes
        seconds = {"rollout": sampled - started, "rewards": scored - sampled}
        return seconds | {"scoring": self.updates - scored, "update": ended - self.updates}

    def _note(self, _: Any, __: Any, arguments: dict[str, Any]) -> None:
        trained = torch.is_grad_enabled()
        if trained and self.phase == "scoring":  # the first pass of the update
            self.phase, self.updates = "update", now()
        if self.counts:
            tokens, positions = arguments["input_ids"].numel(), arguments.get("positions")
            wanted = tokens if positions is None else int(positions.sum())
            first, end = arguments.get("columns") or (0, self.policy.network.vocab_size)
            # backward the gradients of inputs, and of weights where those are trained
            times = 1 + trained * (2 if self.config.model.lora is None else 1)
            self.work[self.phase].append((tokens, wanted, end - first, times))


def measure(s: Setting) -> dict[str, Any]:
    """The result of the fastest step."""
    (step := StepRun(s)).run()
    seconds = min((step.run() for _ in range(s.repeats)), key=lambda one: sum(one.values()))
    rollouts, total = step.task.rollouts_per_step, sum(seconds.values())
    like = next(step.policy.network.parameters()).detach()
    line: dict[str, Any] = {"processes": step.accelerator.num_processes, "step_s": round(total, 3)}
    line |= {"rollouts_per_s": round(rollouts / total, 3), "phases_s": seconds}
    line |= {"tokens_per_s": {}, "forward_passes": {}, "machine_tflop_per_s": {}, "mfu": {}}
    for phase, passes in step.work.items():
        *size, times = (sum(each) / len(passes) for each in zip(*passes, strict=True))
        products = list_products(step.policy.network, *map(round, size))
        work = times * len(passes) * sum(2 * n * a * b for n, a, b in products)
        rate = matmul_rate(products, like.bfloat16() if step.config.bf16 else like)
        line["tokens_per_s"][phase] = round(step.tokens / seconds[phase], 2)
        line["forward_passes"][phase] = len(passes)
        line["machine_tflop_per_s"][phase] = round(rate / 1e12, 4)
        line["mfu"][phase] = round(work / seconds[phase] / rate, 3)
    return line


if __name__ == "__main__":
    found = measure(SETTING)
    if os.environ.get("RANK", "0") == "0":
        report("step", SETTING, found)
