"""A run that is killed again and again and resumed each time, beside the same run left alone.

    python scripts/bench/killed_runs.py kills=20
    python scripts/bench/killed_runs.py accelerate=configs/accelerate/fsdp2_cpu2.yaml kills=20

All processes get SIGKILL together, at random moments over the steps of the run; the first of every
four times while a checkpoint is being written. After each kill all checkpoints must be complete.
One JSON line says whether metrics and weights at the end are those of the run that was left alone;
the exit status is 1 where they are not. It is printed, and added to `runs/bench/killed_runs.jsonl`.
"""

import os
import random
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from results import FOLDER, circumstances, report  # noqa: E402

from mmrl.config.command import Usage, read_settings  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
TIMES = ("time/", "perf/", "step_time", "/latency_s", "/queue")
LIMIT = 1800.0
"""Seconds after which a run that does not get on is given up."""


@dataclass(kw_only=True)
class Setting:
    """What is killed; `key=value` on the command line changes it."""

    module: Literal["mmrl.rl", "mmrl.sft"] = "mmrl.rl"
    """Command of the run."""
    run: str = "configs/rl/quickstart.yaml"
    """Its configuration."""
    accelerate: str = ""
    """Accelerate configuration file, which says how the model is sharded; empty for one process."""
    steps: int = 24
    """Steps of the run."""
    save_steps: int = 1
    """Steps between its checkpoints."""
    kills: int = 20
    """How often it is killed."""
    seed: int = 0
    """Seed of the moments."""
    results: str | None = FOLDER
    """Folder whose `killed_runs.jsonl` gets the line, null for none."""


def launch(setting: Setting, output: Path) -> subprocess.Popen[bytes]:
    """Start the run, or let it go on."""
    launcher = ["accelerate.commands.launch", "--config_file", setting.accelerate, "-m"]
    words = [
        f"config={setting.run}",
        f"output_dir={output}",
        f"max_steps={setting.steps}",
        f"save_steps={setting.save_steps}",
        "resume_from_checkpoint=auto",
    ]
    command = [sys.executable, "-m", *(launcher if setting.accelerate else ()), setting.module]
    environment = {"OMP_NUM_THREADS": "1", **os.environ}
    with output.with_suffix(".log").open("ab") as log:
        return subprocess.Popen(
            [*command, *words], cwd=ROOT, env=environment, stdout=log, stderr=log
        )


def kill_everything(running: subprocess.Popen[bytes]) -> None:
    """SIGKILL of a process and all it has started."""
    import psutil

    with suppress(psutil.NoSuchProcess):
        own = psutil.Process(running.pid)
        for each in [own, *own.children(recursive=True)]:
            with suppress(psutil.NoSuchProcess):
                each.send_signal(signal.SIGKILL)
    running.wait()


def last_words(output: Path) -> str:
    """The end of what a run has printed."""
    return output.with_suffix(".log").read_text(errors="replace")[-3000:]


def last_step(output: Path) -> int:
    """The last step of which metrics are written; 0 before the first."""
    from mmrl.run.metrics_file import read_metrics

    lines = read_metrics(output / "metrics.jsonl")
    return max((line["step"] for line in lines), default=0)


def read_step_time(run: Path) -> float:
    """Seconds that a step of a finished run took."""
    from mmrl.run.metrics_file import read_metrics

    lines = read_metrics(run / "metrics.jsonl")
    keys = ("step_time", "time/step_s")  # of RL and of supervised runs
    return statistics.median(line[key] for line in lines for key in keys if key in line)


def wait_until(running: subprocess.Popen[bytes], output: Path, step: int, writing: bool) -> bool:
    """Wait for a step, and for a checkpoint being written; whether the run goes on then."""
    until = time.monotonic() + LIMIT
    while running.poll() is None and time.monotonic() < until:
        if last_step(output) >= step:
            if not writing or any((output / "checkpoints").glob("*.partial")):
                return True
            time.sleep(0.0005)
        else:
            time.sleep(0.02)
    if running.poll() is None:
        kill_everything(running)
        sys.exit(f"error: the run did not reach step {step} within {LIMIT:g} s")
    return False


def compare(one: Path, other: Path) -> dict[str, float | bool]:
    """How far two runs are from each other."""
    from safetensors.torch import load_file

    left, right = ([*read_lines(run)] for run in (one, other))
    metrics = max(
        (
            abs(float(a.get(key) or 0) - float(b.get(key) or 0))
            for a, b in zip(left, right, strict=False)
            for key in {*a, *b}
        ),
        default=0.0,
    )
    files = ([*(run / "final").glob("*model*.safetensors")] for run in (one, other))
    weights, others = ({k: v for f in some for k, v in load_file(f).items()} for some in files)
    largest = max(float((v.double() - others[k].double()).abs().max()) for k, v in weights.items())
    return {
        "same_metrics": left == right,
        "same_weights": weights.keys() == others.keys() and largest == 0,
        "metric_difference": metrics,
        "weight_difference": largest,
    }


def read_lines(run: Path) -> Iterator[dict[str, float]]:
    """The metrics of a run without those that measure time."""
    from mmrl.run.metrics_file import read_metrics

    for line in read_metrics(run / "metrics.jsonl"):
        yield {k: v for k, v in line.items() if not any(part in k for part in TIMES)}


def measure(setting: Setting, folder: Path) -> dict[str, object]:
    """Do both runs, and say how they compare."""
    from mmrl.run.checkpoint import checkpoint_steps, verify_checksums

    alone, killed = folder / "alone", folder / "killed"
    if launch(setting, alone).wait() != 0:
        sys.exit(
            f"error: the run fails by itself:\n{alone.with_suffix('.log').read_text()[-3000:]}"
        )
    step_s = read_step_time(alone)
    draw = random.Random(setting.seed)
    moments = sorted(draw.uniform(0, setting.steps - 2) for _ in range(setting.kills))
    interrupted_writes, done, resumed = 0, 0, []
    for n, moment in enumerate(moments):
        running, writing = launch(setting, killed), n % 4 == 0
        if not wait_until(running, killed, int(moment), writing):
            break
        time.sleep(0 if writing else moment % 1 * step_s)
        kill_everything(running)
        done += 1
        interrupted_writes += any((killed / "checkpoints").glob("*.partial"))
        complete = checkpoint_steps(killed / "checkpoints")
        for step in complete:
            verify_checksums(killed / "checkpoints" / str(step))
        resumed.append(max(complete, default=0))
    if launch(setting, killed).wait() != 0:
        sys.exit(f"error: the run is not resumed: {last_words(killed)}")
    steps = [line["step"] for line in read_lines(killed) if "learning_rate" in line]
    return {
        "way": Path(setting.accelerate).name or "one process",
        "kills": done,
        "interrupted_writes": interrupted_writes,
        "resumed_at": resumed,
        "every_step_once": steps == list(range(1, setting.steps + 1)),
        **compare(alone, killed),
    }


def main() -> int:
    """Measure with the settings of the command line; return the exit status."""
    usage = Usage("python scripts/bench/killed_runs.py", __doc__ or "", Setting)
    setting = read_settings(usage, sys.argv[1:])
    with TemporaryDirectory() as folder:
        found = measure(setting, Path(folder))
    about = {"bench": "killed_runs", **circumstances(), "config": asdict(setting)}
    report({**about, **found}, setting.results)
    right = all(found[key] for key in ("every_step_once", "same_metrics", "same_weights"))
    return 0 if right and found["kills"] == setting.kills else 1


if __name__ == "__main__":
    sys.exit(main())
