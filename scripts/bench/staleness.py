"""Steps per minute of a run whose engine writes the next rollouts while the trainer updates.

    python scripts/bench/staleness.py steps=20
    python scripts/bench/staleness.py steps=30 completion_length=48

`python -m mmrl.engines.server` is a process of its own; it and the trainer have a core each. The
runs with `max_staleness` 0 and 1 are otherwise the same: a tiny Qwen3 on sums. A JSON line for
each; `ratio` is the steps per minute over those of staleness 0, from the median seconds of a step,
`reward` the mean of the last five steps.
"""

import json
import os
import re
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from mmrl.config.command import Usage, read_settings  # noqa: E402
from mmrl.run.metrics_file import read_metrics  # noqa: E402

CONFIG = ROOT / "configs/rl/text_qwen3.yaml"
MODEL = ROOT / "datasets/text/checkpoints/qwen3"


@dataclass(kw_only=True)
class Setting:
    """Sizes; `key=value` on the command line changes them."""

    steps: int = 20
    """Steps of each run."""
    completion_length: int = 24
    """Tokens of a completion."""
    generations: int = 8
    """Completions of each of eight prompts."""


def start(core: int, log: Path, *words: str) -> subprocess.Popen[bytes]:
    """A module of this project on one core."""
    command = ["taskset", "-c", str(core), sys.executable, "-m", *words]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(command, cwd=ROOT, stderr=log.open("w"), env=environment)


def run(setting: Setting, folder: Path, url: str, staleness: int) -> tuple[float, float]:
    """Median seconds of a step but the first, and the mean reward of the last five."""
    task, out = "tasks.arithmetic", folder / str(staleness)
    sampler = f"name: vllm, mode: server, url: '{url}', max_staleness: {staleness}"
    words = [f"config={CONFIG}", f"output_dir={out}", f"max_steps={setting.steps}", "eval_steps=0"]
    words += [f"{task}.max_completion_length={setting.completion_length}", "bf16=false"]
    words += [f"{task}.num_generations={setting.generations}", f"{task}.sampler={{{sampler}}}"]
    words += [f"{task}.eval_prompts=''", "save_steps=0", "log_completions=false"]
    if status := start(1, folder / "log", "mmrl.rl", *words).wait():
        raise SystemExit(f"{status}: {(folder / 'log').read_text()[-2000:]}")
    lines = [line for line in read_metrics(out / "metrics.jsonl") if "step_time" in line]
    rewards = [line["reward"] for line in lines]
    return median(line["step_time"] for line in lines[1:]), fmean(rewards[-5:])


def main(setting: Setting) -> None:
    """Print a line for each staleness."""
    with TemporaryDirectory() as name:
        folder, log = Path(name), Path(name, "engine")
        words = [f"model={MODEL}", "port=0", "device=cpu"]
        engine = start(0, log, "mmrl.engines.server", *words)
        try:
            while (found := re.search(r"listening at (\S+),", log.read_text())) is None:
                time.sleep(0.2)
            base = 0.0
            for staleness in (0, 1):
                seconds, reward = run(setting, folder, found[1], staleness)
                base = base or seconds
                line = {"max_staleness": staleness, "steps_per_minute": round(60 / seconds, 1)}
                line |= {"ratio": round(base / seconds, 2), "reward": round(reward, 3)}
                print(json.dumps(line), flush=True)
        finally:
            engine.kill()


if __name__ == "__main__":
    main(read_settings(Usage("python scripts/bench/staleness.py", __doc__, Setting), sys.argv[1:]))
