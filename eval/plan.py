"""What a benchmark would do, without loading its model: `dry_run=true`."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from mmrl.evaluation.benchmark import check_benchmark
from mmrl.evaluation.eval_config import BENCHMARKS, EvalConfig
from mmrl.models.task_names import EDITS
from mmrl.planning.network_memory import Needs, Pass
from mmrl.planning.plan_page import ELSEWHERE, Plan, add_memory, cut
from mmrl.planning.planned_launch import for_launch, plan_placement
from mmrl.planning.reward_probe import FEW, add_probes, make_dummy_samples, offline, probe_rewards
from mmrl.pretrained.known import (
    BYTES,
    Known,
    count_columns,
    count_weights,
    find_here,
    find_sizes,
    outline_policy,
)
from mmrl.runtime.computation import find_device
from mmrl.runtime.launch import count_processes
from mmrl.samplers import count_steps


@for_launch
def describe(config: EvalConfig) -> Plan:
    """Plan and rewards of a benchmark; nothing is written, and nothing downloaded but files that
    say what a checkpoint is. Raises ConfigError, FileNotFoundError, ValueError: what the benchmark
    itself would refuse."""
    plan, path = Plan(config), config.model.path
    here = find_here("model.path", path, config.model.without_parts) is not None
    with offline():
        prompts = check_benchmark(config, dry=True)
    placement, (name, raw) = plan_placement(config, count_processes()), find_sizes(path)
    known = f"{ELSEWHERE}{f'; sizes are those of {name}' if name else ''}"
    count = count_weights(outline_policy(raw))
    text = f"{path}{'' if here else known}, {count:,} parameters"
    plan.add("policy", f"{text} in {config.model.dtype} on {find_device(config.device)}")
    own = import_module(BENCHMARKS[config.task].module).plan(config, prompts)
    if not prompts:
        own = {"prompts": f"those of {config.prompts}, not on this machine: not checked"}
    for row, text in own.items():
        plan.add(row, cut(text))
    plan.add("sampler", _samplers(config, len(prompts) * config.completions_per_prompt))
    plan.add("output", ", ".join(filter(None, (config.output_dir, config.geneval_dir))))
    samples = make_dummy_samples(config.task, prompts, FEW, config.model.image_size)
    arguments = ("rewards", config.task, prompts, samples, config.max_failures)
    title = f"on {len(samples)} dummy samples"
    add_probes(plan, title, list(probe_rewards(config.rewards, *arguments)))
    add_memory(plan, estimate_memory(config, raw, placement.device), placement)
    return plan


def _samplers(config: EvalConfig, rows: int) -> str:
    """The samplers with their steps and rows, a full batch where the prompts are not known."""
    width = min(rows or config.batch_size, config.batch_size)
    return "; ".join(
        f"{sampler.name}, {count_steps(sampler, length or 1)} steps of"
        f" {width * sampler.guidance.branches} rows"
        f" each{f', length {length}' if length else ''}"
        for sampler, length in config.rows().values()
    )


def estimate_memory(config: EvalConfig, raw: Mapping[str, Any], device: str = "cpu") -> Needs:
    """Bytes of `weights` and of `sampling` the row of the table that takes most."""
    network, size = outline_policy(raw), BYTES[config.model.dtype]
    columns, sampling = count_columns(config.task, network, raw), 0.0
    known = Known(config.model, raw)
    for sampler, given in config.rows().values():
        written = given or known.count_image_tokens()
        length = config.model.max_prompt_length + written * (2 if config.task in EDITS else 1)
        rows, branches = config.batch_size, sampler.guidance.branches
        step = Pass(network, device, size, rows, length, written, columns, branches)
        decoding = network.count_decoding(written, known.frames)
        sampling = max(sampling, step.sample(sampler), decoding)
    return Needs({"weights": count_weights(network) * size, "sampling": sampling})
