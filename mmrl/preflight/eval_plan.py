"""What a benchmark would do, without loading its model: `dry_run=true`."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import torch

from mmrl.evaluation.comparison import check_evaluations
from mmrl.evaluation.eval_config import BENCHMARKS, EvalConfig
from mmrl.models.families import get_family
from mmrl.models.task_names import EDITS, writes_images
from mmrl.preflight.disk import VQ_BYTES, Disk
from mmrl.preflight.logits_memory import count_logits
from mmrl.preflight.memory_plan import describe_memory
from mmrl.preflight.plan_page import ELSEWHERE, Plan, cut
from mmrl.preflight.planned_launch import plan_placement
from mmrl.preflight.policy_sizes import count_weights
from mmrl.preflight.probe_config import FEW
from mmrl.preflight.probe_samples import make_dummy_samples
from mmrl.preflight.public_sizes import BYTES, MMADA_8B, find_sizes
from mmrl.preflight.reward_probe import add_probes, offline, probe_rewards
from mmrl.preflight.state_memory import Needs
from mmrl.pretrained.known import find_here, image_tokens, own_vq
from mmrl.runtime.device import find_device
from mmrl.runtime.launch import count_processes


def describe(config: EvalConfig) -> Plan:
    """Plan and rewards of a benchmark; nothing is written, and nothing downloaded but files that
    say what a checkpoint is.

    Raises:
        ConfigError, FileNotFoundError, ValueError: what the benchmark itself would refuse.
    """
    plan, paths = Plan(config), [config.model.path, *config.compare_to]
    here = {path: find_here("model.path", path) is not None for path in paths}
    with offline():
        prompts = check_evaluations(config, dry=True)
    found = {path: find_sizes(path) for path in paths}
    for path, (name, raw) in found.items():
        known = f"{ELSEWHERE}{f'; sizes are those of {name}' if name else ''}"
        text = f"{path}{'' if here[path] else known}, {count_weights(raw):,} parameters"
        plan.add("policy", f"{text} in {config.model.dtype} on {find_device(config.device)}")
    own = import_module(BENCHMARKS[config.task].module).plan(config, prompts)
    if not prompts:
        own = {"prompts": f"those of {config.prompts}, not on this machine: not checked"}
    for row, text in own.items():
        plan.add(row, cut(text))
    plan.add("sampler", _samplers(config, len(prompts) * config.completions_per_prompt))
    plan.add("output", ", ".join(filter(None, (config.output_dir, config.geneval_dir))))
    samples = make_dummy_samples(config.task, prompts, FEW, config.model.image_size)
    probes = probe_rewards(
        config.rewards, "rewards", config.task, prompts, samples, config.max_failures
    )
    add_probes(plan, f"on {samples.source}", list(probes))
    needs = [estimate_memory(config, raw) for _, raw in found.values()]
    parts = max(needs, key=lambda each: sum(each.values()))
    sampling = {"weights": parts.pop("weights"), "sampling": sum(parts.values())}
    describe_memory(plan, Needs(sampling), plan_placement(config.devices, count_processes()))
    vq = own_vq(config.model)
    downloads = {path: 2.0 * count_weights(raw) for path, (_, raw) in found.items()}
    Disk(config.output_dir, {}, {**({vq: VQ_BYTES} if vq else {}), **downloads}).describe(plan)
    return plan


def _samplers(config: EvalConfig, rows: int) -> str:
    """The samplers with their steps and rows, a full batch where the prompts are not known."""
    width = min(rows or config.batch_size, config.batch_size)
    return "; ".join(
        f"{sampler.name}, {sampler.steps} steps of {width * sampler.guidance.sides} rows"
        f" each{f', length {length}' if length else ''}"
        for sampler, length in config.rows().values()
    )


def estimate_memory(config: EvalConfig, raw: Mapping[str, Any]) -> dict[str, float]:
    """Bytes per device of `weights`, `logits` of a step, and keys and values in a `cache`, of the
    row of the table that takes most.

    Args:
        config: of the evaluation.
        raw: `config.json` of the policy.
    """
    with torch.device("meta"):
        network = get_family(raw).network(raw)
    size = BYTES[config.model.dtype]
    images = writes_images(config.task)
    columns = raw.get("codebook_size", MMADA_8B["codebook_size"]) if images else network.vocab_size
    logits, caches = [], []
    for sampler, length in config.rows().values():
        positions = length or image_tokens(config.model, raw)
        logits.append(count_logits(network, sampler, config.batch_size, positions, columns))
        source = positions if config.task in EDITS else 0
        row = network.count_cached(config.model.max_prompt_length + source + positions)
        caches.append(0 if sampler.cache == "none" else config.batch_size * row * size)
    return {
        "weights": count_weights(raw) * size,
        "logits": max(logits),
        **({"cache": max(caches)} if any(caches) else {}),
    }
