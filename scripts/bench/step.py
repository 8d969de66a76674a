"""A whole RL step, by phase: seconds, tokens per second, and how near it comes to the machine.

    python scripts/bench/step.py repeats=2
    python scripts/bench/step.py tasks=[text] cache=dual way=ours
    python scripts/bench/step.py tasks=[text] way=ours threads=1 processes=[1,2]

The step is that of `mmrl.rl`: prompts, groups, rewards, masks, scoring, update. Its policy is an
MMaDA of random weights, which writes images and texts and reads images as codes. Operations are
those the step cannot do without (`mmrl.models.network.flops`); `mfu` is their number per second as
a share of the rate of the matrix products of the same shapes, precision and threads, measured in
the same run. The straightforward way calls the same network on padded rows for all logits. Both
take turns; each time is the least of the repeats. A JSON line for each task and way.

With several `processes` the line has the rollouts per second of each number, and their ratio.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]

from mmrl.config import check, check_choice  # noqa: E402
from mmrl.config.command import Usage, read_settings  # noqa: E402

TASKS = ("image", "text", "vision")
LAUNCH = ("--config_file", str(ROOT / "configs/accelerate/cpu2.yaml"), "--main_process_port", "0")


@dataclass(kw_only=True)
class Setting:
    """Sizes; `key=value` on the command line changes them."""

    tasks: list[str] = field(default_factory=lambda: list(TASKS))
    """What is measured: image (text to image), text, vision (questions about an image)."""
    width: int = 512
    """Width of the network, a multiple of 128; its vocabulary has 134,656 tokens."""
    layers: int = 8
    """Its layers."""
    image_size: int = 256
    """Side of an image in pixels, 16 a token."""
    vq_width: int = 32
    """Base width of the image tokenizer; 128 in the published one."""
    max_prompt_length: int = 256
    """Tokens that the straightforward way pads the prompt of an image to."""
    mask_policy: Literal["key_padding", "ignore"] = "key_padding"
    """What padding means."""
    num_prompts: int = 1
    """Groups of the step."""
    num_generations: int = 4
    """Rollouts of a group."""
    steps: int = 12
    """Denoising steps of an image."""
    cfg_scale: float = 3.5
    """Guidance of an image."""
    length: int = 256
    """Response tokens of a text."""
    text_steps: int = 64
    """Denoising steps of a text."""
    block_size: int = 32
    """Its blocks."""
    cache: Literal["none", "prefix", "dual"] = "none"
    """Its cache, in our way alone."""
    num_iterations: int = 1
    """Optimiser steps on the rollouts."""
    lora: int = 16
    """Rank of the adapter; 0 trains all weights."""
    gradient_checkpointing: bool = False
    """Whether the update computes blocks again."""
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """Of the weights; auto is bfloat16 on an accelerator, float32 on a CPU."""
    cpu: bool = False
    """Whether to leave an accelerator alone."""
    threads: int = 0
    """Of a process; 0 leaves torch's number."""
    clock: Literal["wall", "cpu"] = "wall"
    """Whose seconds: the clock on the wall, or of the processor, which is the fairer of the two for
    one thread on a machine that does other work as well."""
    processes: list[int] = field(default_factory=lambda: [1])
    """Numbers of processes to compare on the CPU."""
    repeats: int = 1
    """The fastest of so many counts."""
    way: Literal["both", "ours"] = "both"
    """Whether the straightforward way is measured too."""
    results: str | None = "runs/bench"
    """Folder of `step.jsonl`, to which the lines are added; null for none."""
    checkpoint: str = ""
    """Folder of the policy and its image tokenizer; empty writes one of random weights."""

    def __post_init__(self) -> None:
        for task in self.tasks:
            check_choice("tasks", task, TASKS)
        check(self.repeats >= 1, "repeats", self.repeats, "at least 1")
        check(bool(self.processes), "processes", self.processes, "one or several numbers")


if __name__ == "__main__":  # before the seconds that torch takes
    SETTING = read_settings(Usage("python scripts/bench/step.py", __doc__, Setting), sys.argv[1:])

import torch  # noqa: E402
from make_skeleton import Config as Skeleton  # noqa: E402
from make_skeleton import make_skeleton  # noqa: E402
from matmul_rate import MatmulRate  # noqa: E402
from results import circumstances, report  # noqa: E402
from step_run import PHASES, Passes, Result, StepRun, checksum  # noqa: E402

from mmrl.data.data_config import DataConfig  # noqa: E402
from mmrl.pretrained.model_config import LoraConfig, ModelConfig  # noqa: E402
from mmrl.rl_config import RLConfig  # noqa: E402
from mmrl.rollouts.task_config import TaskConfig  # noqa: E402
from mmrl.samplers import SamplerConfig  # noqa: E402


def write_policy(s: Setting, folder: Path) -> None:
    """Write a policy and an image tokenizer of random weights."""
    sizes = {"layers": s.layers, "width": s.width, "shards": 1}
    make_skeleton(Skeleton(family="mmada", out=str(folder / "policy"), **sizes))
    make_skeleton(Skeleton(family="magvitv2", out=str(folder / "vq"), width=s.vq_width))


def task_config(s: Setting, name: str, cache: str) -> TaskConfig:
    """Prompts, sampler and method of a task."""
    sampler = SamplerConfig(name="static", steps=s.text_steps, block_size=s.block_size, cache=cache)
    common: dict[str, Any] = {
        "num_prompts": s.num_prompts,
        "num_generations": s.num_generations,
        "rewards": [{"name": "checksum", "reward": checksum}],
    }
    text = {"sampler": sampler, "max_completion_length": s.length}
    method = {"name": "diffu_grpo", "num_iterations": s.num_iterations}
    if name == "image":
        return TaskConfig(
            prompts=str(ROOT / "datasets/shapes/train.jsonl"),
            sampler=SamplerConfig(name="emerge", steps=s.steps, cfg_scale=s.cfg_scale),
            algorithm={**method, "name": "mask_grpo"},
            **common,
        )
    if name == "text":
        prompts = str(ROOT / "datasets/text/countdown_train.jsonl")
        return TaskConfig(task="text", prompts=prompts, algorithm=method, **text, **common)
    return TaskConfig(
        task="image_to_text",
        prompts=str(ROOT / "datasets/shapes/questions_train.jsonl"),
        data=DataConfig(format="dllm_rl"),
        algorithm=method,
        **text,
        **common,
    )


def run_config(s: Setting, name: str, folder: Path, cache: str) -> RLConfig:
    """The run whose step is measured."""
    on_device = not s.cpu and torch.accelerator.is_available()
    dtype = s.dtype if s.dtype != "auto" else ("bfloat16" if on_device else "float32")
    model = ModelConfig(
        path=str(folder / "policy"),
        vq=str(folder / "vq"),
        dtype=dtype,  # type: ignore[arg-type]
        image_size=s.image_size,
        max_prompt_length=s.max_prompt_length if name == "image" else 4096,
        mask_policy=s.mask_policy,
        lora=LoraConfig(r=s.lora) if s.lora else None,
        gradient_checkpointing=s.gradient_checkpointing,
    )
    return RLConfig(
        model=model,
        tasks={name: task_config(s, name, cache)},
        # the weights stay, and with them the rollouts of every repeat
        learning_rate=1e-12,
        max_steps=1000,
        bf16=dtype == "bfloat16",
        torch_compile=False,
    )


def measure(s: Setting, name: str, folder: Path) -> Iterator[dict[str, Any]]:
    """A line for each way."""
    clock = {"wall": time.perf_counter, "cpu": time.process_time}[s.clock]
    cache = s.cache if name != "image" else "none"
    ours = StepRun(run_config(s, name, folder, cache), s.cpu, clock)
    steps = {"ours": (ours, False)}
    if s.way == "both":
        other = ours
        if cache != "none":
            other = StepRun(run_config(s, name, folder, "none"), s.cpu, clock)
        steps["straightforward"] = other, True
    work = ours.count()
    network = ours.policy.network
    dtype = torch.bfloat16 if ours.config.bf16 else next(network.parameters()).dtype
    sizes = {phase: own.mean for phase, own in work.items()}
    rates = MatmulRate(network.core, sizes, dtype, network.device, clock)
    found: dict[str, list[Result]] = {way: [] for way in steps}
    for way, (step, full) in steps.items():
        if way != "ours":  # which has been warmed up by counting
            step.run(full)
    for _ in range(s.repeats):
        rates.measure()
        for way, (step, full) in steps.items():
            found[way].append(step.run(full))
    rates.measure()
    for way, results in found.items():
        line = {"task": name, "way": way, **speeds(ours.rollouts, results, work, rates)}
        if way != "ours":
            mine, theirs = (min(each, key=lambda r: r.seconds) for each in found.values())
            line |= compare(mine, theirs)
        yield line


def speeds(
    rollouts: int, results: list[Result], work: dict[str, Passes], rates: MatmulRate
) -> dict[str, Any]:
    """Times, shares, speeds and operations of one way; `work` is what either cannot do without."""
    seconds = min(result.seconds for result in results)
    phases = {name: min(r.phases.get(name, 0.0) for r in results) for name in results[0].phases}
    total, tokens = sum(phases.values()), results[0].tokens.numel()
    used = {phase: own for phase, own in work.items() if phases.get(phase)}
    return {
        "step_s": round(seconds, 3),
        "rollouts_per_s": round(rollouts / seconds, 4),
        "rollouts_per_rollout_s": round(rollouts / phases["rollout"], 4),
        "phases_s": {name: round(value, 3) for name, value in phases.items()},
        "share": {name: round(value / total, 3) for name, value in phases.items()},
        "tokens_per_s": {name: round(tokens / phases[name], 2) for name in used},
        "forward_passes": {name: own.calls for name, own in used.items()},
        "tflop": {name: round(own.flops / 1e12, 4) for name, own in used.items()},
        "tflop_per_s": {n: round(own.flops / phases[n] / 1e12, 4) for n, own in used.items()},
        "machine_tflop_per_s": {
            **{name: round(rates.rate(name) / 1e12, 4) for name in used},
            "fastest": round(rates.fastest / 1e12, 4),
        },
        "mfu": {n: round(own.flops / phases[n] / rates.rate(n), 3) for n, own in used.items()},
        "peak_mb": round(min(result.peak_mb for result in results), 1),
    }


def compare(ours: Result, other: Result) -> dict[str, Any]:
    """How much faster ours is, and whether both are the same."""
    return {
        "ratio": {
            name: round(other.phases[name] / ours.phases[name], 2)
            for name in PHASES
            if ours.phases.get(name)
        },
        "peak_share": round(ours.peak_mb / other.peak_mb, 3),
        "same_tokens": round((ours.tokens == other.tokens).float().mean().item(), 4),
        "loss_difference": abs(ours.metrics["loss"] - other.metrics["loss"]),
        "grad_norms": [ours.metrics["grad_norm"], other.metrics["grad_norm"]],
    }


def launch(s: Setting, name: str, number: int, folder: Path) -> dict[str, Any]:
    """The line of our way in some processes of their own."""
    words = [word for word in sys.argv[1:] if not word.startswith(("processes=", "tasks="))]
    words += [f"tasks=[{name}]", "way=ours", f"checkpoint={folder}", "results=null", "cpu=true"]
    prefix = ["-m", "accelerate.commands.launch", *LAUNCH, "--num_processes", str(number)]
    command = [sys.executable, *(prefix if number > 1 else []), __file__, *words]
    environment = {**os.environ, "OMP_NUM_THREADS": str(s.threads or 1)}
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment)
    return json.loads(done.stdout.splitlines()[-1])


def compare_processes(s: Setting, name: str, folder: Path) -> dict[str, Any]:
    """Rollouts per second of each number of processes, of the fastest of interleaved launches."""
    found: dict[int, list[dict[str, Any]]] = {number: [] for number in s.processes}
    for _ in range(s.repeats):
        for number, lines in found.items():
            lines.append(launch(s, name, number, folder))
    line: dict[str, Any] = {"task": name, "way": "ours"}
    for key in ("rollouts_per_rollout_s", "rollouts_per_s"):
        speed = {number: max(one[key] for one in lines) for number, lines in found.items()}
        line[key] = speed
        line[f"{key}_ratio"] = round(speed[s.processes[-1]] / speed[s.processes[0]], 3)
    return line


def main(s: Setting, folder: Path) -> None:
    """Measure every task and print its lines."""
    if s.threads:
        torch.set_num_threads(s.threads)
    if not s.checkpoint:
        write_policy(s, folder)
    folder = Path(s.checkpoint or folder)
    around = {"bench": "step", **circumstances(s.cpu), "config": asdict(s)}
    for name in s.tasks:
        lines = (
            [compare_processes(s, name, folder)] if s.processes != [1] else measure(s, name, folder)
        )
        for line in lines:
            if int(os.environ.get("RANK", "0")) == 0:
                report({**around, **line}, s.results)


if __name__ == "__main__":
    with TemporaryDirectory() as directory:
        main(SETTING, Path(directory))
