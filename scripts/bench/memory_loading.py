"""Peak memory of each process while a model is loaded and in a short RL run, by way to launch it.

    python scripts/make_skeleton.py family=llada out=runs/bench/llada layers=8 width=512
    python scripts/bench/memory_loading.py model=runs/bench/llada

A JSON line for each way: MiB at the peak of each phase, of the process that has most; what the dry
run estimates; and the peak of loading over the size of the float32 weights, for each process.
Measured is, on a GPU, what torch has allocated, and on a CPU what belongs to the process alone
(mapped files are dropped when memory is short) beyond its imports. glibc gives back what is freed
at once, by the variables set here: otherwise a process keeps more than it uses.
"""

import json
import os
import re
import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from mmrl.config.command import Usage, read_settings

WAYS = ("one_process", "cpu2", "fsdp2_cpu2", "zero3_cpu2")
PHASES = {"loading": "loading", "rollouts": "rollout", "update": "update", "writing": "checkpoint"}
"""Beginning of the name of an activity -> phase."""
ALLOCATOR = {
    "MALLOC_MMAP_THRESHOLD_": "65536",
    "MALLOC_TRIM_THRESHOLD_": "65536",
    "MALLOC_ARENA_MAX": "1",
    "OMP_NUM_THREADS": "1",
}


@dataclass(kw_only=True)
class Setting:
    """What is measured; `key=value` on the command line changes it."""

    model: str = "datasets/text/checkpoints/llada"
    """Checkpoint of text, such as a skeleton; what is small drowns in what libraries take."""
    run: str = "configs/rl/text_arithmetic.yaml"
    """RL configuration it is trained with, for two steps."""
    options: list[str] = field(
        default_factory=lambda: ["model.max_prompt_length=256", "per_device_train_batch_size=4"]
    )
    """Further settings of the run, `key=value` each."""
    ways: list[str] = field(default_factory=lambda: [f"configs/accelerate/{w}.yaml" for w in WAYS])
    """Accelerate configurations; on GPUs, those without `cpu2` in their names."""
    folder: str = ""
    """Where a launched process leaves its peaks; empty launches them."""


if __name__ == "__main__":  # before the seconds that torch takes
    USAGE = Usage("python scripts/bench/memory_loading.py", __doc__, Setting)
    SETTING = read_settings(USAGE, sys.argv[1:])

import torch  # noqa: E402
from text_sampling import report  # noqa: E402

from mmrl import rl  # noqa: E402
from mmrl.config import load_config  # noqa: E402
from mmrl.models import load_model  # noqa: E402
from mmrl.rl_config import RLConfig  # noqa: E402
from mmrl.runtime.activity import watch  # noqa: E402


def used() -> float:
    """MiB of this process: on a GPU, or in memory that no other process has."""
    if torch.cuda.is_available():
        return torch.cuda.memory_allocated() / 2**20
    resident, shared = map(int, Path("/proc/self/statm").read_text().split()[1:3])
    return (resident - shared) * os.sysconf("SC_PAGE_SIZE") / 2**20


def words_of(s: Setting) -> list[str]:
    """The words of the run."""
    own = [f"model.path={s.model}", "max_steps=2", "save_steps=0", "eval_steps=0"]
    return [f"config={s.run}", *own, "bf16=false", "async_save=false", *s.options]


def watch_run(s: Setting) -> None:
    """Do the run in this process, and write its peaks."""
    peaks, ended = defaultdict[str, float](float), threading.Event()
    inside, base = [""], [0.0]

    @contextmanager
    def follow(name: str) -> Iterator[None]:
        phase = next((phase for start, phase in PHASES.items() if name.startswith(start)), "")
        before, inside[0] = inside[0], phase or inside[0]
        if phase == "loading":
            base[0] = used()
        yield
        inside[0] = before

    def sample() -> None:
        while not ended.wait(0.004):
            peaks[inside[0]] = max(peaks[inside[0]], used() - base[0])

    thread = threading.Thread(target=sample, daemon=True)
    thread.start()
    with watch(follow):
        rl.train(load_config(RLConfig, [*words_of(s), f"output_dir={s.folder}/run"]))
    ended.set()
    thread.join()
    peaks.pop("", None)
    Path(s.folder, f"peaks_{os.environ.get('RANK', '0')}.json").write_text(json.dumps(peaks))


def estimate(s: Setting, way: str) -> float:
    """MiB at the peak that the dry run estimates for a launch."""
    words = [*words_of(s), "dry_run=true", f"launch_config={way}"]
    command = [sys.executable, "-m", "mmrl.rl", *words]
    plan = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    [(size, unit)] = re.findall(r"([\d.]+) ([MG])iB at the peak", plan)
    return float(size) * (1024 if unit == "G" else 1)


def measure(s: Setting, way: str) -> dict[str, object]:
    """The line of one way."""
    with TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "accelerate.commands.launch", "--config_file", way]
        command += ["--main_process_port", "0", __file__, *sys.argv[1:], f"folder={folder}"]
        # DeepSpeed writes to the standard output
        subprocess.run(command, check=True, stdout=sys.stderr, env={**os.environ, **ALLOCATOR})
        found = [json.loads(file.read_text()) for file in sorted(Path(folder).glob("peaks_*"))]
    weights = load_model(s.model, "float32", deferred=True)
    size = sum(p.numel() * p.element_size() for p in weights.parameters()) / 2**20
    peaks = {phase: round(max(one.get(phase, 0) for one in found)) for phase in found[0]}
    expected = estimate(s, way)
    return {
        "way": Path(way).stem,
        "processes": len(found),
        "peak_mib": peaks,
        "estimated_mib": expected,
        "estimate_ratio": round(expected / max(peaks.values()), 3),
        "weights_mib": round(size, 1),
        "loading_share": [round(one["loading"] / size, 3) for one in found],
    }


if __name__ == "__main__":
    if SETTING.folder:
        watch_run(SETTING)
    else:
        for name in SETTING.ways:
            report("memory_loading", SETTING, measure(SETTING, name))
