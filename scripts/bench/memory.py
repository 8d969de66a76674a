"""Peak memory of a process in a short RL run, estimated and measured, for each way to launch it.

    python scripts/bench/memory.py
    python scripts/bench/memory.py ways=[one_process,fsdp2] processes=2 lora=8

The policy draws codes of the tiny image tokenizer; its network has random weights. Measured is, on
a CPU, the resident memory above that after all imports, read every few milliseconds, and on a GPU
what torch has allocated. glibc returns what is freed at once, by the variables that this script
sets: otherwise a process keeps more than it uses. A JSON line for each way, of the main process:
bytes in MiB, their ratio, and both for each phase.
"""

import json
import os
import subprocess
import sys
import threading
from collections import defaultdict
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from mmrl.config import load_config  # noqa: E402
from mmrl.config.command import Usage, read_settings  # noqa: E402
from mmrl.rl_config import RLConfig  # noqa: E402

SHAPES = ROOT / "datasets/shapes"
PROMPT_LENGTH = 24
PHASES = {
    "loading the model": "loading",
    "rollouts": "rollout",
    "scoring": "update",
    "update": "update",
    "writing": "checkpoint",
}
"""Beginning of the name of an activity -> phase of the estimate."""
ALLOCATOR = {
    "MALLOC_MMAP_THRESHOLD_": "65536",
    "MALLOC_TRIM_THRESHOLD_": "65536",
    "MALLOC_ARENA_MAX": "1",
}
Peaks = dict[str, float]


@dataclass(kw_only=True)
class Setting:
    """Sizes; `key=value` on the command line changes them."""

    ways: list[str] = field(
        default_factory=lambda: [
            "one_process",
            "multi_gpu",
            "fsdp2",
            "fsdp2_offload",
            "zero2",
            "zero3",
            "zero3_offload",
            "hsdp",
        ]
    )
    """Files of configs/accelerate."""
    processes: int = 2
    """Processes of all ways but `one_process`; `hsdp` has twice as many."""
    width: int = 768
    """Width of the network, a multiple of 64; its MLPs are three times as wide."""
    layers: int = 12
    """Its layers."""
    num_generations: int = 4
    """Rollouts of a group; each process samples one group a step."""
    micro_batch: int = 2
    """Rollouts of a micro-batch."""
    steps: int = 3
    """Steps of the run; DDP has all its buffers from the second on."""
    lora: int = 0
    """Rank of an adapter; 0 trains all weights."""
    beta: float = 0.0
    """Weight of the KL to a reference policy."""
    options: list[str] = field(default_factory=lambda: ["async_save=false"])
    """Further settings of the run, `key=value` each; which phases hold a copy that a thread writes
    depends on the disk."""
    folder: str = ""
    """Where a launched process finds the policy and leaves its peaks; empty starts them."""


def write_policy(s: Setting, folder: Path) -> None:
    """Write a policy of random weights and its prompts."""
    from mmrl.models import load_vq
    from mmrl.objectives.masked import outline_start
    from mmrl.objectives.masked_config import MaskedConfig
    from mmrl.objectives.policy_start import load_start
    from mmrl.objectives.start_config import NetworkConfig

    sizes = {"d_model": s.width, "n_layers": s.layers, "n_heads": s.width // 64}
    vq = str(SHAPES / "checkpoints/magvit")
    options = MaskedConfig(
        data="-",
        tokenizer=str(SHAPES / "tokenizer"),
        vq=vq,
        image_size=32,
        max_prompt_length=PROMPT_LENGTH,
        network=NetworkConfig(**sizes, mlp_hidden_size=3 * s.width),
    )
    policy = outline_start(options, load_vq(vq))
    load_start(policy, options, seed=0, device="cpu")
    policy.save(folder / "policy")
    lines = (SHAPES / "train.jsonl").read_text().splitlines(keepends=True)
    (folder / "prompts.jsonl").write_text("".join(lines[::400]))


def run_settings(s: Setting, folder: Path, processes: int) -> RLConfig:
    """The settings of the run."""
    task = "tasks.images"
    words = [
        f"output_dir={folder / 'run'}",
        f"model.path={folder / 'policy'}",
        f"model.vq={SHAPES / 'checkpoints/magvit'}",
        f"model.max_prompt_length={PROMPT_LENGTH}",
        f"{task}.prompts={folder / 'prompts.jsonl'}",
        f"{task}.num_prompts={processes}",
        f"{task}.num_generations={s.num_generations}",
        f"{task}.sampler.steps=4",
        f"{task}.rewards=[{{name: shapes, mode: partial}}]",
        f"{task}.algorithm={{name: mask_grpo, num_iterations: 1, beta: {s.beta}}}",
        f"per_device_train_batch_size={s.micro_batch}",
        f"max_steps={s.steps}",
        "save_steps=2",
        "bf16=false",
        *([f"model.lora.r={s.lora}"] if s.lora else []),
        *s.options,
    ]
    return load_config(RLConfig, words)


def estimate_way(s: Setting, launch: Path, folder: Path) -> Peaks:
    """Estimated MiB of each phase."""
    from mmrl.planning.memory import estimate
    from mmrl.planning.planned_launch import use_launch
    from mmrl.pretrained.known import known_config
    from mmrl.rollouts.tasks import Task
    from mmrl.runtime.placement import read_placement

    with use_launch(str(launch)):
        placement = read_placement()
        config = run_settings(s, folder, placement.world_size)
        tasks = [Task(name, options) for name, options in config.tasks.items()]
        needs = estimate(config, known_config(config.model.path) or {}, tasks, placement)
    return {phase.phase: phase.device / 2**20 for phase in needs.phases()}


def measure_way(s: Setting, launch: Path, folder: Path) -> Peaks:
    """Measured MiB of each phase, in processes that accelerate launches."""
    words = [word for word in sys.argv[1:] if not word.startswith("ways=")]
    command = [sys.executable, "-m", "accelerate.commands.launch", "--config_file", str(launch)]
    command += ["--main_process_port", "0", str(Path(__file__)), *words, f"folder={folder}"]
    done = subprocess.run(
        command, env={**os.environ, **ALLOCATOR, "OMP_NUM_THREADS": "1"}, capture_output=True
    )
    if done.returncode:
        sys.exit(done.stderr.decode()[-3000:])
    return json.loads((folder / "peaks.json").read_text())


def watch_run(s: Setting, folder: Path) -> None:
    """Do the run in this process; the main one writes its peaks."""
    import torch

    from mmrl import rl
    from mmrl.runtime import activity
    from mmrl.runtime.deepspeed_launch import uses_deepspeed

    for name in ("planning.run_checks", "training.rl_progress", "training.start"):
        import_module(f"mmrl.{name}")  # before memory is read
    names = ["peft", "pyarrow.parquet", "transformers", "models"]
    for name in [*names, *(["deepspeed"] if uses_deepspeed() else [])]:
        import_module(name)
    import_module("pyarrow").table({"": [0]})  # imports pandas, where that is installed

    shown: list[activity.Display] = []

    class Watched(activity.Display):
        def __enter__(self) -> activity.Display:
            shown.append(self)
            return super().__enter__()

    activity.Display = Watched  # type: ignore[misc]
    on_gpu, peaks, ended = torch.cuda.is_available(), defaultdict[str, float](float), []
    base: list[float] = []

    def watch() -> None:
        pause = threading.Event()
        while not ended:
            names = [each.name for display in shown for each in list(display.stack)]
            found = [phase for start, phase in PHASES.items() if any(map(_begins(start), names))]
            now = torch.cuda.memory_allocated() if on_gpu else resident()
            if found and not base:
                base.append(0.0 if on_gpu else now)
            for phase in found[-1:] if base else []:
                peaks[phase] = max(peaks[phase], (now - base[0]) / 2**20)
            pause.wait(0.004)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    rank = int(os.environ.get("RANK", "0"))
    rl.train(run_settings(s, folder, int(os.environ.get("WORLD_SIZE", "1"))))
    ended.append(True)
    thread.join()
    if on_gpu:
        peaks["all"] = torch.cuda.max_memory_allocated() / 2**20
    if rank == 0:
        (folder / "peaks.json").write_text(json.dumps(peaks))


def _begins(start: str) -> Any:
    return lambda name: name.startswith(start)


def resident() -> float:
    """Bytes of this process in memory."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def main() -> None:
    """Print a line for each way, or measure one in this process."""
    s = read_settings(Usage("python scripts/bench/memory.py", __doc__, Setting), sys.argv[1:])
    if s.folder:
        watch_run(s, Path(s.folder))
        return
    import torch
    from launch_form import write_launch_form
    from setting import circumstances

    for way in s.ways:
        with TemporaryDirectory() as place:
            folder = Path(place)
            write_policy(s, folder)
            number = {"one_process": 1, "hsdp": 2 * s.processes}.get(way, s.processes)
            on_cpu = not torch.accelerator.is_available()
            launch = write_launch_form(f"{way}.yaml", number, folder, on_cpu)
            estimated = estimate_way(s, launch, folder)
            measured = measure_way(s, launch, folder)
        highest = max(estimated.values()), max(measured.values())
        line = {
            "bench": "memory",
            "way": way,
            "processes": number,
            "lora": s.lora,
            "estimated_mib": round(highest[0]),
            "measured_mib": round(highest[1]),
            "ratio": round(highest[0] / highest[1], 3),
            "phases": {
                phase: [round(estimated.get(phase, 0)), round(size)]
                for phase, size in measured.items()
            },
            **circumstances(),
        }
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
