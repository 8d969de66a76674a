"""Steps of training in float32 and bfloat16, with fused attention and from matrix products.

    python scripts/bench/precision.py run=configs/rl/shapes_t2i.yaml prompts=2 torch_compile=true
    ONEDNN_MAX_CPU_ISA=AVX2 ATEN_CPU_CAPABILITY=avx2 python scripts/bench/precision.py repeats=3

A JSON line for each way: least seconds of a step of `prompts` groups, sampling and update apart,
seconds of the first step, which compiles where that is wanted, and all over float32 with `sdpa`.
"""

import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from time import process_time
from typing import Any

from mmrl.config.command import Usage, read_settings


@dataclass(kw_only=True)
class Setting:
    """Sizes; `key=value` on the command line changes them."""

    run: str = "configs/rl/shapes_t2i.yaml"
    """RL configuration that is measured."""
    prompts: int = 2
    """Groups of a step."""
    repeats: int = 3
    """Steps after the first; the fastest counts."""
    torch_compile: bool = False
    """Whether the blocks are compiled."""


if __name__ == "__main__":  # before the seconds that torch takes
    USAGE = Usage("python scripts/bench/precision.py", __doc__, Setting)
    SETTING = read_settings(USAGE, sys.argv[1:])

import torch  # noqa: E402
from accelerate import Accelerator  # noqa: E402
from results import circumstances, report  # noqa: E402

from mmrl.config import load_config  # noqa: E402
from mmrl.models import load_policy  # noqa: E402
from mmrl.pretrained.model_config import policy_options  # noqa: E402
from mmrl.rl_config import RLConfig  # noqa: E402
from mmrl.rollouts.rollout import sample_groups, score_groups  # noqa: E402
from mmrl.rollouts.tasks import Task  # noqa: E402
from mmrl.runtime.precision import native_bfloat16  # noqa: E402
from mmrl.training.trainer import Trainer  # noqa: E402

WAYS = {
    f"{dtype} {kernel}": [f"bf16={dtype == 'bfloat16'}", f"model.attn_implementation={kernel}"]
    for dtype in ("float32", "bfloat16")
    for kernel in ("sdpa", "eager")
}


def config_of(s: Setting, words: list[str], folder: str) -> RLConfig:
    """The run with fewer groups, in one micro-batch."""
    path = f"config={s.run}"
    [(name, task)] = load_config(RLConfig, [path]).tasks.items()
    rows = s.prompts * task.num_generations
    return load_config(
        RLConfig,
        [
            path,
            f"output_dir={folder}",
            f"torch_compile={s.torch_compile}",
            *words,
            f"tasks.{name}.num_prompts={s.prompts}",
            f"per_device_train_batch_size={rows}",
        ],
    )


def steps(config: RLConfig, repeats: int) -> Iterator[dict[str, float]]:
    """CPU seconds and results of one training step after the other."""
    trainer = Trainer(config, load_policy(**policy_options(config.model)), Accelerator(cpu=True))
    [(name, options)] = config.tasks.items()
    task = Task(name, options)
    task.build_rewards()
    for step in range(repeats + 1):
        started = process_time()
        batch = score_groups(sample_groups(task, trainer.policy, step, config.seed, 0, 1))
        sampled = process_time()
        values = trainer.update({name: (task, batch)})
        yield {
            "sample_s": sampled - started,
            "update_s": process_time() - sampled,
            "step_s": process_time() - started,
            "reward": float(batch.rewards.nanmean()),
            "grad_norm": values["grad_norm"],
        }


def measure(s: Setting) -> Iterator[dict[str, Any]]:
    """A line for each of `WAYS`."""
    seconds: dict[str, float] = {}
    for way, words in WAYS.items():
        with tempfile.TemporaryDirectory() as folder:
            first, *rest = steps(config_of(s, words, folder), s.repeats)
        best = min(rest, key=lambda line: line["step_s"])
        seconds[way] = best["step_s"]
        yield {
            "bench": "precision",
            "way": way,
            "compiled": s.torch_compile,
            "kernels": torch.backends.cpu.get_cpu_capability(),
            "native_bfloat16": native_bfloat16(torch.device("cpu")),
            "first_step_s": round(first["step_s"], 2),
            **{key: round(value, 3) for key, value in best.items()},
            "cpu_ratio": round(best["step_s"] / seconds["float32 sdpa"], 2),
        }


if __name__ == "__main__":
    about = circumstances()
    for line in measure(SETTING):
        report({**line, **about})
