"""Evaluations of a table: the starting weights and those of finished runs, under a sampler."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from mmrl.config import merge, to_plain, to_yaml
from mmrl.data.data_config import DataConfig
from mmrl.evaluation.eval_config import EvalConfig
from mmrl.models.task_names import writes_images
from mmrl.rl_config import RLConfig
from mmrl.samplers import SamplerConfig
from scripts.claims.jobs import Job


def evaluation(
    config: RLConfig,
    task: str,
    weights: str,
    prompts: str,
    sampler: Mapping[str, Any],
    samples: int,
    folder: Path,
) -> EvalConfig:
    """Settings of an evaluation with the prompts' form, rewards and lengths of a run.

    Args:
        config: of the run.
        task: of the run.
        weights: directory or hub id of the model.
        prompts: file.
        sampler: differs from that of rollouts in these settings.
        samples: completions per prompt.
        folder: where it writes.

    Raises:
        ConfigError: an impossible sampler.
    """
    options = config.tasks[task]
    data = merge(DataConfig, asdict(options.data), options.eval_data)
    values: dict[str, Any] = {
        "output_dir": str(folder),
        "model": {**to_plain(config.model), "path": weights},
        "task": options.task,
        "prompts": prompts,
        "data": to_plain(data),
        "batch_size": options.rollouts_at_once,
        "sampler": {**asdict(options.sampler), **sampler},
        "rewards": to_plain(options.eval_rewards or options.rewards),
    }
    if writes_images(options.task):
        return merge(EvalConfig, {**values, "num_images_per_prompt": samples})
    prefill = options.eval_assistant_prefill
    values |= {
        "num_samples": samples,
        "assistant_prefill": options.assistant_prefill if prefill is None else prefill,
    }
    if length := options.eval_max_completion_length or options.max_completion_length:
        values["max_completion_length"] = length
    return merge(EvalConfig, values)


def sampler_values(sampler: SamplerConfig | Mapping[str, Any]) -> dict[str, Any]:
    """What a sampler states beyond the defaults, and its name; the same for equal ones."""
    values = dict(sampler) if isinstance(sampler, Mapping) else asdict(sampler)
    defaults = asdict(SamplerConfig())
    return {
        key: value for key, value in values.items() if key == "name" or value != defaults.get(key)
    }


def job(config: EvalConfig, label: str, finish: Callable[[int], None]) -> Job:
    """The command of an evaluation; its settings are in `eval.yaml` of its folder."""
    folder = Path(config.output_dir)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "eval.yaml").write_text(to_yaml(_stated(config)), encoding="utf-8")
    module = "mmrl.eval" if config.task in ("text", "image_to_text") else "mmrl.eval_v"
    return Job(label, [module, f"config={folder / 'eval.yaml'}"], folder, finish=finish)


def has_run(config: EvalConfig) -> bool:
    """Whether its scores are there, of these very settings."""
    path = Path(config.output_dir) / "scores.json"
    return path.is_file() and json.loads(path.read_text())["config"] == config.to_dict()


def read_scores(folder: Path) -> dict[str, dict[str, float]]:
    """Mean, standard error over prompts and number of prompts, by reward."""
    from mmrl.evaluation.means import mean_over_prompts

    content = json.loads((folder / "scores.json").read_text())
    samples = content["samples"]
    if isinstance(samples, Mapping):  # of texts: by row of the table, of which there is one
        [samples] = samples.values()
        samples = [{"id": sample["id"], **sample["scores"]} for sample in samples]
    keys = dict.fromkeys(key for sample in samples for key in sample if key != "id")
    pairs = {k: [(s["id"], s[k]) for s in samples if s.get(k) is not None] for k in keys}
    return {key: mean_over_prompts(some) for key, some in pairs.items() if some}


def read_diversity(folder: Path) -> dict[str, float]:
    """Values of metrics of diversity among the samples of a prompt, where there are any."""
    return dict(_find(json.loads((folder / "scores.json").read_text())))


def _find(content: Any) -> list[tuple[str, float]]:
    """Numbers below keys that begin with `diversity/`, or below a section of that name."""
    found: list[tuple[str, float]] = []
    for key, value in content.items() if isinstance(content, Mapping) else ():
        if key == "diversity" and isinstance(value, Mapping):
            found += _find({f"diversity/{name}": each for name, each in value.items()})
        elif key.startswith("diversity/"):
            value = value.get("mean") if isinstance(value, Mapping) else value
            found += [(key, value)] if isinstance(value, int | float) else []
        else:
            found += _find(value)
    return found


def _stated(config: EvalConfig) -> dict[str, Any]:
    return {**config.to_dict(), "task": config.task, "dry_run": False}
