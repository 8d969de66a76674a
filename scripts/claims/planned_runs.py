"""A training run of a table: its words, its directory, its curve."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import Any

from omegaconf import OmegaConf

from mmrl.algorithms import load_algorithm
from mmrl.algorithms.forwards import count_forwards
from mmrl.config import ConfigError, check, load_config
from mmrl.config.settings import flatten
from mmrl.config.yaml_file import read_yaml
from mmrl.pretrained.known import known_config
from mmrl.rewards.scoring.terms import key_of
from mmrl.rl_config import RLConfig
from mmrl.rollouts.task_config import TaskConfig
from mmrl.run.checkpoint import model_folders
from mmrl.run.metrics_file import read_metrics
from mmrl.run_config import OUT_OF_TIME
from scripts.claims.jobs import Job

PHASES = ("rollout", "reward_wait", "score", "update")
"""Of a step of training; evaluations and checkpoints are no part of its seconds."""
FREE = re.compile(
    r"output_dir|resume_\w+|max_hours|config|report_to\b.*|dry_run|log_completions\w*"
)
"""Settings that do not change what a run is."""


class Run:
    """A run of `mmrl.rl`.

    Args:
        task: of the table, or another name that the run has there.
        method: of the table.
        folder: run directory; its last part is the seed, or names a choice.
        words: command line, without `output_dir` and `resume_from_checkpoint`.

    Raises:
        ConfigError: settings that cannot run.
    """

    def __init__(self, task: str, method: str, folder: Path, words: Sequence[str]) -> None:
        self.task, self.method, self.folder = task, method, folder
        self.words = [*words, f"output_dir={folder}", "resume_from_checkpoint=auto"]
        self.config = load_config(RLConfig, self.words)

    @property
    def label(self) -> str:
        """Task, method and seed."""
        return " ".join(filter(None, (self.task, self.method, f"seed {self.folder.name}")))

    @property
    def options(self) -> TaskConfig:
        """Settings of its task; of the first where it has several."""
        return next(iter(self.config.tasks.values()))

    @cached_property
    def settings(self) -> dict[str, Any]:
        """What its YAML and its words state, by dotted key, without what changes nothing."""
        words = [word for word in self.words if not word.startswith(("config=", "~"))]
        [path] = [word.partition("=")[2] for word in self.words if word.startswith("config=")]
        stated = OmegaConf.merge(read_yaml(path), OmegaConf.from_dotlist(words))
        plain = flatten(OmegaConf.to_container(stated), lists=False)
        return {key: value for key, value in plain if not FREE.fullmatch(key)}

    @property
    def lines(self) -> list[dict[str, Any]]:
        """Its metrics."""
        return read_metrics(self.folder / "metrics.jsonl")

    @property
    def finished(self) -> bool:
        """Whether it has reached its last step."""
        return (self.folder / "final").is_dir()

    @property
    def steps(self) -> int:
        """How many it has logged."""
        lines = self.lines
        return int(lines[-1]["step"]) if lines else 0

    @property
    def weights(self) -> Path:
        """Directory of the model it ended with; of its newest checkpoint where time has ended it.

        Raises:
            ConfigError: there is none.
        """
        found = model_folders(self.folder)
        if not found:
            raise ConfigError(
                f"'{self.folder}' has no weights, but its run is among the results. Restore the"
                " directory, or remove the line of this run from the results to train it again."
            )
        return found[0]

    def job(self, finish: Any = lambda status: None) -> Job:
        """Its command; `max_hours` is what is left of it after the steps that were done before."""
        words, limit = self.words, self.config.max_hours
        if limit is not None:
            spent = trained_seconds(self.lines, self.config.logging_steps) / 3600
            words = [*words, f"max_hours={max(limit - spent, 1e-3):.6g}"]
        accepted = (0,) if limit is None else (0, OUT_OF_TIME)
        total = self.config.max_steps
        return Job(
            self.label,
            ["mmrl.rl", *words],
            self.folder,
            total,
            lambda: self.steps,
            finish,
            accepted,
        )


def metric_of(run: Run, task: str, metric: str = "") -> str:
    """Key of a task's score in `metrics.jsonl`."""
    return f"eval/{task}/{reward_of(run, task, metric)}"


def reward_of(run: Run, task: str, metric: str = "") -> str:
    """Key of the reward that a task is scored by: `metric`, or its first one."""
    options = run.config.tasks[task]
    entries = options.eval_rewards or options.rewards
    keys = [key_of(entry) for entry in entries]
    check(metric in ("", *keys), f"tasks.{task}.metric", metric, f"one of {', '.join(keys)}")
    return metric or keys[0]


def held_out(
    run: Run, task: str, lines: Sequence[Mapping[str, Any]], metric: str = ""
) -> list[float]:
    """Scores of a task in evaluations on held-out prompts, one after the other."""
    key = metric_of(run, task, metric)
    found = [line[key] for line in lines if key in line]
    check(len(found) > 1, key, found, "measured before and after", "Set eval_steps.")
    return found


def read_curve(run: Run, metric: str = "") -> list[dict[str, float]]:
    """The evaluations of a run on validation: step, rollouts, seconds of training, and score."""
    options, lines = run.options, run.lines
    held_out(run, run.task, lines, metric)
    key, each = metric_of(run, run.task, metric), options.num_prompts * options.num_generations
    found = []
    for line in lines:
        if key in line:
            step = int(line["step"])
            before = [some for some in lines if some["step"] <= step]
            seconds = round(trained_seconds(before, run.config.logging_steps), 1)
            point = {"step": step, "rollouts": step * each, "seconds": seconds, "score": line[key]}
            found.append(point)
    return found


def read_diversity(run: Run) -> dict[str, list[float]]:
    """First and last value of every metric of diversity: of evaluations, or else of rollouts."""
    found: dict[str, list[float]] = {}
    lines = run.lines
    for prefix in ("diversity/", f"eval/{run.task}/diversity/"):
        keys = dict.fromkeys(key for line in lines for key in line if key.startswith(prefix))
        for key in keys:
            values = [line[key] for line in lines if isinstance(line.get(key), int | float)]
            if len(values) > 1:
                found["diversity/" + key.removeprefix(prefix)] = [values[0], values[-1]]
    return found


def trained_seconds(lines: Sequence[Mapping[str, Any]], window: int) -> float:
    """Seconds of the steps of lines of metrics, each the mean of `window` steps."""
    phases = [f"time/{phase}_s" for phase in PHASES]
    return window * sum(line.get(phase) or 0.0 for line in lines for phase in phases)


def seconds_per_update(run: Run) -> float:
    """Mean seconds of scoring old and reference policies and of the update."""
    lines = [line for line in run.lines if "time/update_s" in line]
    return fmean(line["time/score_s"] + line["time/update_s"] for line in lines)


def forwards_per_rollout(config: RLConfig) -> float:
    """Forward passes of a rollout in an update, the mean over inner iterations."""
    from mmrl.rollouts.tasks import completion_length

    [options] = config.tasks.values()
    method = load_algorithm(options.algorithm)
    public = known_config(config.model.path) or {}
    length = completion_length(options, config.model, public)
    how = options.sampler.steps, length, config.passes_at_once
    each = [
        count_forwards(method, *how, n, config.num_mini_batches, public.get("block_size")).total
        for n in range(method.num_iterations)
    ]
    return fmean(each)


def digest(value: Any) -> str:
    """Twelve digits that change with a value of plain containers."""
    text = json.dumps(value, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def digest_weights(folder: Path) -> str:
    """Twelve digits that change with the weights in a directory.

    Of a model of the hub, which is no directory, they are of its id.

    Raises:
        ConfigError: the directory has none.
    """
    inside = folder.expanduser()
    if not inside.is_dir():
        return digest(str(folder))
    files = sorted(inside.glob("*.safetensors")) or sorted(inside.glob("*.bin"))
    check(bool(files), "weights", str(folder), "a directory with *.safetensors or *.bin")
    found = hashlib.sha256()
    for path in files:
        each = hashlib.sha256()
        with path.open("rb") as file:
            while chunk := file.read(2**20):
                each.update(chunk)
        found.update(each.digest())
    return found.hexdigest()[:12]
