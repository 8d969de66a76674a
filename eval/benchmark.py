"""What benchmarks of images and of text share: settings, sampling in processes, resumption.

Rows are cut into batches, batches are dealt to the processes, and every finished batch is stored at
once. What is stored is not sampled again, so an interrupted evaluation continues with the command
that began it, on any number of processes. Rewards score everything at the end.
"""

from __future__ import annotations

import hashlib
import json
import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import torch
from accelerate import Accelerator

from eval.asking import check_answerable, give_policy
from eval.benchmark_config import BenchmarkConfig, Setting
from eval.evaluation import Batch, rows_of, sample_batch
from eval.sample_store import SampleStore
from mmrl.config import NotHereError, check, to_plain, to_yaml
from mmrl.data.lazy_images import LazyImages
from mmrl.data.prompts import drop_long, load_prompts
from mmrl.model_config import check_prompts, is_hub_id, policy_options
from mmrl.preflight.probe_config import FEW
from mmrl.preflight.probe_samples import make_dummy_samples
from mmrl.preflight.reward_probe import format_probes, offline, probe_rewards
from mmrl.runtime.activity import activity, advance
from mmrl.runtime.device import find_device
from mmrl.runtime.launch import check_launch, is_sharded
from mmrl.runtime.sharding import shard_policy
from mmrl.types import Prompt
from models import Policy, load_policy
from rewards.scoring.scorer import Scorer
from rewards.scoring.terms import key_of

_FREE = {
    "output_dir",
    "device",
    "rewards",
    "max_failures",
    "dry_run",
    "grid_images",
    "geneval_dir",
    "group_by",
}
"""Settings that may differ from those the stored samples were made with."""


Config = TypeVar("Config", bound=BenchmarkConfig)


class Sampled(NamedTuple):
    """What a benchmark has to score.

    `rows` are the (prompt, sample) pairs of every setting, `batches` theirs by label, `left_out`
    the number of prompts that were too long, `scorer` the rewards, None where there are none.
    """

    rows: list[tuple[Prompt, int]]
    batches: dict[str, list[Batch]]
    left_out: int
    scorer: Scorer | None


class Unit(NamedTuple):
    """A batch: its name in the store, the label of its setting, its rows."""

    name: str
    label: str
    rows: slice


def checked(config: BenchmarkConfig) -> tuple[list[Prompt], SampleStore, dict[str, Any]]:
    """Prompts, store and what decides its samples, once all is checked that needs no model.

    Raises:
        ConfigError, FileNotFoundError, ValueError: what the benchmark would stop at.
    """
    check_launch("adamw")
    config.check_places()
    prompts = load_prompts(config.prompts, config.task, config.data, config.limit)
    config.check_prompts(prompts)
    check_prompts(config.model, config.task, prompts)
    store, decisive = SampleStore(Path(config.output_dir) / "samples"), _decisive(config, prompts)
    store.check(decisive)
    return prompts, store, decisive


def sample_all(
    config: BenchmarkConfig, settings: Mapping[str, Setting], num_samples: int
) -> Sampled | None:
    """Sample what is not stored yet; return everything on the main process, None on the others.

    Args:
        config: prompts, model, output directory.
        settings: by label; each samples all rows.
        num_samples: completions per prompt.

    Raises:
        ConfigError: settings that cannot run, or that differ from those of stored samples.
        FileNotFoundError, ValueError: see `load_policy`; also a reward that cannot be built.
    """
    prompts, store, decisive = checked(config)
    # without a device, launched processes find each other only where the CPU is asked for
    accelerator = Accelerator(cpu=not torch.accelerator.is_available())
    device = _device(config.device, accelerator)
    main = accelerator.is_main_process
    check_answerable(config.rewards, is_sharded(accelerator))
    scorer = Scorer(config.rewards, config.max_failures) if main and config.rewards else None
    if scorer is not None:
        scorer.check(prompts)
    with activity("loading the model"):
        policy = load_policy(**policy_options(config.model), device=device)
        shard_policy(policy, accelerator)
    if scorer is not None:
        give_policy(scorer, policy, config.seed)
    longest = max((length for _, length in settings.values() if length), default=None)
    kept = drop_long(prompts, partial(policy.fits, length=longest), config.prompts)
    rows = rows_of(kept, num_samples)
    units = _units(settings, len(rows), config.batch_size)
    missing = [unit for unit in units if not store.has(unit.name)]
    accelerator.wait_for_everyone()  # all have looked before anyone writes
    store.begin(decisive)
    mine = missing[accelerator.process_index :: accelerator.num_processes]
    with policy.keeping_pace():
        _sample(policy, settings, rows, mine, store, config.seed)
    accelerator.wait_for_everyone()
    if not main:
        return None
    batches: dict[str, list[Batch]] = {label: [] for label in settings}
    for unit in units:
        batches[unit.label].append(store.read(unit.name))
    return Sampled(rows, batches, len(prompts) - len(kept), scorer)


def command(
    config: Config,
    plan: Callable[[Config, Sequence[Prompt]], Mapping[str, str]],
    run: Callable[[Config], object],
) -> None:
    """Run a benchmark and print its table, or only say what would be done.

    Args:
        config: what to run.
        plan: the lines of a dry run.
        run: writes `table.txt`; returns None where another process does.
    """
    if config.dry_run:
        prompts = _prompts_here(config)
        device = find_device(config.device)
        lines = {"policy": f"{config.model.path} on {device}", **plan(config, prompts)}
        if not prompts:
            lines["prompts"] = f"those of {config.prompts}, not on this machine: not looked at"
        shown = [f"  {name:<9}{text}" for name, text in lines.items()]
        samples = make_dummy_samples(config.task, prompts, FEW, config.model.image_size)
        probes = probe_rewards(
            config.rewards, "rewards", config.task, prompts, samples, config.max_failures
        )
        shown += ["rewards", *(f"  {line}" for line in format_probes(list(probes)))]
        sys.stdout.write("\n".join([to_yaml(config), "plan", *shown]) + "\n")
    elif run(config) is not None:
        out = Path(config.output_dir)
        sys.stdout.write((out / "table.txt").read_text(encoding="utf-8"))
        sys.stdout.write(f"written to {out}\n")


def _prompts_here(config: BenchmarkConfig) -> list[Prompt]:
    """The checked prompts of a dry run; none where they are on the hub alone."""
    try:
        with offline():
            return checked(config)[0]
    except NotHereError:
        if not is_hub_id(config.prompts):
            raise
        return []


def passes(settings: Mapping[str, Setting], rows: int, batch_size: int) -> str:
    """The samplers, their steps and rows, for the plan."""
    width = min(rows, batch_size)
    return "; ".join(
        f"{sampler.name}, {sampler.steps} steps of {width * (2 if sampler.cfg_scale else 1)} rows"
        f" each{f', length {length}' if length else ''}"
        for sampler, length in settings.values()
    )


def reward_keys(config: BenchmarkConfig) -> str:
    """The rewards by key, for the plan."""
    return ", ".join(map(key_of, config.rewards)) or "none"


def json_scores(scores: Mapping[str, Sequence[float]], n: int) -> dict[str, float | None]:
    """Scores of sample n by reward, None where there is none."""
    return {key: each[n] if math.isfinite(each[n]) else None for key, each in scores.items()}


def _device(name: str, accelerator: Accelerator) -> torch.device:
    if accelerator.num_processes == 1:
        return find_device(name)
    check(name == "auto", "device", name, "auto with several processes", "Each has its own.")
    return accelerator.device


def _units(labels: Iterable[str], count: int, size: int) -> list[Unit]:
    return [
        Unit(f"{place}-{first // size:05d}", label, slice(first, first + size))
        for place, label in enumerate(labels)
        for first in range(0, count, size)
    ]


def _sample(
    policy: Policy,
    settings: Mapping[str, Setting],
    rows: Sequence[tuple[Prompt, int]],
    units: Sequence[Unit],
    store: SampleStore,
    seed: int,
) -> None:
    """Sample and store some units."""
    with activity("samples", sum(len(rows[unit.rows]) for unit in units)):
        for unit in units:
            sampler, length = settings[unit.label]
            store.write(unit.name, sample_batch(policy, rows[unit.rows], sampler, seed, length))
            advance(len(rows[unit.rows]))


def _decisive(config: BenchmarkConfig, prompts: Sequence[Prompt]) -> dict[str, Any]:
    """Everything that decides the samples: settings, prompts, files of the model."""
    values = {key: value for key, value in to_plain(config).items() if key not in _FREE}
    texts = [[prompt.id, prompt.text, prompt.messages, *_identities(prompt)] for prompt in prompts]
    files = [
        [path.name, path.stat().st_size, path.stat().st_mtime_ns]
        for folder in (config.model.path, config.model.vq or "")
        for path in sorted(Path(folder).expanduser().glob("*.safetensors") if folder else [])
    ]
    return {**values, "texts of prompts": _digest(texts), "files of model.path": _digest(files)}


def _identities(prompt: Prompt) -> list[list[Any]]:
    """What tells the pictures of a prompt from others; nothing where there are none."""
    pictures = prompt.images if isinstance(prompt.images, LazyImages) else LazyImages(())
    return [picture.identity for picture in pictures.sources]


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, default=str).encode()).hexdigest()[:12]
