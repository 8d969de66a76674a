"""Steps of a run with and without overlap of scoring with sampling, and whether they are the same.

    python scripts/bench/overlap.py repeats=2
    python scripts/bench/overlap.py groups=8 steps=4 load=compute

The reward scores by the shapes verifier and then sleeps, as one that waits for a server does: for
as long as sampling one group takes, for each group of a call. `load=compute` lets it work on the
processor instead. One JSON line; the runs take turns, and each speed is the fastest of its repeats.
"""

import sys
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Any, Literal

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from mmrl.config.command import Usage, read_settings  # noqa: E402


@dataclass(kw_only=True)
class Setting:
    """Sizes; `key=value` on the command line changes them."""

    run: str = "configs/rl/quickstart.yaml"
    """RL configuration whose model, prompts and sampler are taken."""
    groups: int = 8
    """Prompts of a step."""
    num_generations: int = 4
    """Rollouts of a prompt."""
    steps: int = 4
    """Steps of a run."""
    repeats: int = 2
    """The fastest of so many runs counts."""
    load: Literal["sleep", "compute"] = "sleep"
    """How the reward passes its time: waiting, or on the processor."""
    group_s: float = 0.0
    """Seconds the reward takes for a group; 0 for as long as sampling one takes."""


if __name__ == "__main__":  # before the seconds that torch takes
    SETTING = read_settings(
        Usage("python scripts/bench/overlap.py", __doc__, Setting), sys.argv[1:]
    )

from results import circumstances, report  # noqa: E402

from mmrl.config import load_config  # noqa: E402
from mmrl.rewards import Reward, build_reward  # noqa: E402
from mmrl.rl import train  # noqa: E402
from mmrl.rl_config import RLConfig  # noqa: E402
from mmrl.run.run_directory import RunDirectory  # noqa: E402
from mmrl.types import Sample  # noqa: E402

WAYS = {"overlap": True, "in_turn": False}
TIMES = ("time/", "perf/", "step_time", "/latency_s", "/queue")


class SlowReward:
    """The verifier of shapes, slowed down.

    Args:
        seconds: for each sample.
        load: how they pass.
    """

    def __init__(self, seconds: float, load: str) -> None:
        self.seconds, self.load = seconds, load
        self.verifier: Reward = build_reward({"name": "shapes", "mode": "partial"})

    def __call__(self, samples: list[Sample]) -> Any:
        scores = self.verifier(samples)
        until = time.perf_counter() + self.seconds * len(samples)
        if self.load == "sleep":
            time.sleep(max(0.0, until - time.perf_counter()))
        while time.perf_counter() < until:
            pass
        return scores


def config(s: Setting, folder: Path, steps: int, overlap: bool, seconds: float) -> RLConfig:
    """The run of the setting, which samples one group at a time."""
    base = load_config(RLConfig, [f"config={s.run}"])
    [(name, task)] = base.tasks.items()
    slow = {"name": "slow", "reward": SlowReward(seconds, s.load)}
    changed = replace(
        task,
        eval_prompts="",
        num_prompts=s.groups,
        num_generations=s.num_generations,
        rollout_batch_size=s.num_generations,
        rewards=[slow],
        eval_rewards=[],
    )
    return replace(
        base,
        output_dir=str(folder),
        tasks={name: changed},
        max_steps=steps,
        eval_steps=0,
        save_steps=0,
        resume_from_checkpoint=None,
        overlap_rewards=overlap,
        per_device_train_batch_size=s.groups * s.num_generations,
    )


def lines(run: RLConfig) -> list[dict[str, float]]:
    """The metrics of a run, one line per step."""
    return RunDirectory(train(run)).read_metrics()


def results(found: list[dict[str, float]]) -> list[dict[str, float]]:
    """Metrics without times."""
    return [
        {k: v for k, v in line.items() if not any(part in k for part in TIMES)} for line in found
    ]


def measure(s: Setting, folder: Path) -> dict[str, Any]:
    """Both ways, in turn; a first run finds out how long a group takes."""
    warm = lines(config(s, folder / "warm", 2, False, 0.0))
    seconds = s.group_s or warm[-1]["time/rollout_s"] / s.groups
    found: dict[str, list[list[dict[str, float]]]] = {way: [] for way in WAYS}
    for n in range(s.repeats):
        for way, overlap in WAYS.items():
            run = config(s, folder / f"{way}{n}", s.steps, overlap, seconds / s.num_generations)
            found[way].append(lines(run))
    best = {way: min(runs, key=_seconds) for way, runs in found.items()}
    speed = {way: s.steps / _seconds(run) for way, run in best.items()}
    every = [results(run) for runs in found.values() for run in runs]
    named = ("time/rollout_s", "time/reward_s", "time/reward_wait_s", "time/update_s")
    return {
        "group_s": round(seconds, 4),
        "steps_per_s": {way: round(value, 4) for way, value in speed.items()},
        "ratio": round(speed["overlap"] / speed["in_turn"], 3),
        **{
            name: {way: round(fmean(line[name] for line in run), 3) for way, run in best.items()}
            for name in named
        },
        "same_results": all(one == every[0] for one in every),
        "reward": [round(line["reward"], 6) for line in every[0]],
    }


def _seconds(run: list[dict[str, float]]) -> float:
    return sum(line["step_time"] for line in run)


if __name__ == "__main__":
    with TemporaryDirectory() as directory:
        line = measure(SETTING, Path(directory))
    report({"bench": "overlap", **circumstances(), "config": asdict(SETTING), **line})
