"""Benchmarks: checks, sampling in processes, resumption, scores.

Rows are cut into batches, batches are distributed over the processes, and every finished batch is
stored at once. Stored batches are not sampled again, so an interrupted benchmark continues with the
same command, on any number of processes. Rewards score everything at the end.
"""

import hashlib
import json
from collections.abc import Iterable, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from accelerate import Accelerator

from mmrl.config import NotHereError, check
from mmrl.data.images import LazyImages
from mmrl.data.prompts import drop_long, load_prompts, prefill
from mmrl.evaluation.eval_config import BENCHMARKS, EvalConfig
from mmrl.evaluation.results import Report, Results, write_results
from mmrl.evaluation.sample_store import SampleStore
from mmrl.evaluation.text_scores import group_places
from mmrl.models import Policy, load_policy
from mmrl.models.task_names import completions_of, writes_images
from mmrl.pretrained.checks import (
    check_checkpoints,
    check_network_blocks,
    check_prompts,
    check_sampling,
    check_task,
)
from mmrl.pretrained.known import Known, own_vq
from mmrl.pretrained.model_config import policy_options
from mmrl.rewards.registry.interface import Itemised
from mmrl.rewards.scoring.scorer import Scorer
from mmrl.rollouts.diversity import Completions, measure
from mmrl.rollouts.held_out import Batch, Evaluation, list_rows, list_samples, sample_batch
from mmrl.rollouts.policy_queries import bind_policy, check_queries, check_queries_unsharded
from mmrl.run.run_lock import check_writable, lock_directory
from mmrl.runtime.activity import activity, advance
from mmrl.runtime.computation import find_device
from mmrl.runtime.launch import join_processes
from mmrl.runtime.launch_checks import check_launch
from mmrl.runtime.sharding import build_sharding
from mmrl.samplers import check_sampler
from mmrl.types import Prompt

_FREE = ("output_dir", "device", "rewards", "max_failures", "diversity", "dry_run", "devices")
_FREE += ("verbose", "geneval_dir", "group_by")
"""Settings that may differ from those the stored samples were made with."""


class Unit(NamedTuple):
    """A batch: its name in the store, the label of its setting, its rows."""

    name: str
    label: str
    rows: slice


def check_benchmark(config: EvalConfig, dry: bool = False) -> list[Prompt]:
    """Check everything that needs no model, and load the prompts. With `dry`, prompts that are only
    on the hub may be missing, there are then none; and those that are too long are left out, as the
    benchmark does when its policy is there.

    Raises ConfigError, FileNotFoundError, ValueError: settings that cannot run, or that differ from
    those of the stored samples."""
    check_launch()
    config.settle_rewards()
    check_writable("output_dir", Path(config.output_dir))
    known = Known.read(config.model)
    tokens = check_task(known, config.task, f"for the task {config.task}")
    policy = check_checkpoints(known)
    check_queries(config.rewards, "rewards", {"": known})
    for sampler, length in config.rows().values():
        check_sampling(known, sampler)
        if not writes_images(config.task):
            keys = "sampler", "max_completion_length"
            check_network_blocks(known, sampler, length, *keys)
    if tokens is not None and writes_images(config.task):
        check_sampler(config.sampler, length=tokens)
    try:
        prompts = load_prompts(config.prompts, config.task, config.data, config.limit)
    except NotHereError:
        if not dry:
            raise
        return []
    prompts = prefill(prompts, config.assistant_prefill)
    group_places(prompts, config.group_by)
    check_prompts(known, config.task, prompts)
    _store(config).check(_decisive(config, prompts))
    if policy is None or config.task not in policy.layouts:
        return prompts
    kept = _drop_long(config, policy, prompts) if dry or config.model.long_prompts else prompts
    return kept if dry else prompts


def _drop_long(config: EvalConfig, policy: Policy, prompts: Sequence[Prompt]) -> list[Prompt]:
    longest = max((length for _, length in config.rows().values() if length), default=None)
    fits, rule = partial(policy.fits, length=longest), config.model.long_prompts
    return drop_long(prompts, fits, config.prompts, policy.cuts, rule)


def run_benchmark(config: EvalConfig) -> Report | None:
    """Sample what is not stored yet, score everything, and write what is returned; None on all
    processes but the main one.

    Raises ConfigError, FileNotFoundError, ValueError: see `check_benchmark`, `load_policy`; also a
    reward that cannot be built, or another benchmark that writes into `output_dir`. Raises
    RewardError: a reward failed more often than `max_failures` allows."""
    check_launch()
    accelerator = join_processes()
    with lock_directory(Path(config.output_dir), accelerator.is_main_process):
        results = _sample_and_score(config, check_benchmark(config), accelerator)
        if results is None:
            return None
        report = import_module(BENCHMARKS[config.task].module).report(config, results)
        write_results(config, results, report)
        return report


def _sample_and_score(
    config: EvalConfig, prompts: Sequence[Prompt], accelerator: Accelerator
) -> Results | None:
    """The results of a checked benchmark; None on all processes but the main one."""
    alone, main = accelerator.num_processes == 1, accelerator.is_main_process
    device, allowed = config.device, "auto with several processes"
    check(alone or device == "auto", "device", device, allowed, "Each has its own.")
    sharding = build_sharding(accelerator)
    check_queries_unsharded(config.rewards, sharding.gathers)
    scorer = Scorer(config.rewards, config.max_failures) if main and config.rewards else None
    if scorer is not None:
        scorer.check(prompts, completions_of(prompts[0].task))
    with activity("loading the model"):
        device = find_device(config.device) if alone else accelerator.device
        place = {"device": device, "deferred": sharding.gathers}
        policy = load_policy(**policy_options(config.model), **place)
        sharding.shard_policy(policy, trained=False)
    if scorer is not None:
        bind_policy(scorer, {"": policy}, config.seed)
    settings, kept = config.rows(), _drop_long(config, policy, prompts)
    rows = list_rows(kept, config.completions_per_prompt)
    units, store = _list_units(settings, len(rows), config.batch_size), _store(config)
    missing = [unit for unit in units if not store.has(unit.name)]
    accelerator.wait_for_everyone()  # before any process writes
    store.begin(_decisive(config, prompts))
    mine = missing[accelerator.process_index :: accelerator.num_processes]
    count = sum(len(rows[unit.rows]) for unit in mine)
    with policy.sampling(True), activity("samples", count):
        for unit in mine:
            sampler, length = settings[unit.label]
            batch = sample_batch(policy, rows[unit.rows], sampler, config.seed, length)
            store.write(unit.name, batch)
            advance(len(batch.completions))
    accelerator.wait_for_everyone()
    if not main:
        return None
    batches: dict[str, list[Batch]] = {label: [] for label in settings}
    for unit in units:
        batches[unit.label].append(store.read(unit.name))
    each = config.completions_per_prompt
    scored = {k: _score(rows, v, scorer, config.diversity, each) for k, v in batches.items()}
    return Results(scored, batches, len(prompts) - len(kept))


def _score(
    rows: Sequence[tuple[Prompt, int]],
    batches: Sequence[Batch],
    scorer: Scorer | None,
    diversity: Sequence[str],
    num_samples: int,
) -> Evaluation:
    """Score the completions of all rows, `num_samples` of each prompt."""
    completions = [completion for batch in batches for completion in batch.completions]
    tokens = [row for batch in batches for row in batch.tokens]
    found = Evaluation([prompt for prompt, _ in rows], completions, {})
    found.diversity = measure(diversity, Completions(completions, tokens), num_samples)
    if scorer is not None:
        samples, terms = list_samples(rows, completions), scorer.terms
        itemised = {term.key: term.reward for term in terms if isinstance(term.reward, Itemised)}
        for reward in itemised.values():
            reward.record = []
        with activity("scoring"):
            found.scores = scorer.score(samples).components
        for key, reward in itemised.items():
            items = {id(sample): some for sample, some in reward.record or []}
            found.items[key] = [items.get(id(sample), []) for sample in samples]
    return found


def _store(config: EvalConfig) -> SampleStore:
    return SampleStore(Path(config.output_dir) / "samples")


def _list_units(labels: Iterable[str], count: int, size: int) -> list[Unit]:
    return [
        Unit(f"{place}-{first // size:05d}", label, slice(first, first + size))
        for place, label in enumerate(labels)
        for first in range(0, count, size)
    ]


def _decisive(config: EvalConfig, prompts: Sequence[Prompt]) -> dict[str, Any]:
    """Everything that decides the samples: settings, prompts, files of the model."""
    values = {key: value for key, value in config.to_dict().items() if key not in _FREE}
    texts = [[p.id, p.text, p.messages, p.prefill, *_identities(p)] for p in prompts]
    files = [
        [path.name, path.stat().st_size, path.stat().st_mtime_ns]
        for folder in (config.model.path, own_vq(config.model) or "")
        for path in sorted(Path(folder).expanduser().glob("*.safetensors") if folder else [])
    ]
    return {**values, "texts of prompts": _digest(texts), "files of model.path": _digest(files)}


def _identities(prompt: Prompt) -> list[str]:
    """What distinguishes the images of a prompt from others; empty without images."""
    images = prompt.images if isinstance(prompt.images, LazyImages) else LazyImages(())
    return [image.digest.hex() for image in images.sources]


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, default=str).encode()).hexdigest()[:12]
