"""What a benchmark would do, without loading its model: `dry_run=true`."""

from importlib import import_module

from mmrl.config import to_yaml
from mmrl.evaluation.comparison import check_evaluations
from mmrl.evaluation.eval_config import BENCHMARKS, EvalConfig
from mmrl.preflight.eval_memory import describe_needs
from mmrl.preflight.probe_config import FEW
from mmrl.preflight.probe_samples import make_dummy_samples
from mmrl.preflight.reward_probe import format_probes, offline, probe_rewards
from mmrl.rewards.scoring.terms import key_of
from mmrl.runtime.device import find_device


def describe(config: EvalConfig) -> str:
    """Settings, plan and rewards of a benchmark; nothing is downloaded or written.

    Raises:
        ConfigError, FileNotFoundError, ValueError: what the benchmark itself would refuse.
    """
    with offline():
        prompts = check_evaluations(config, dry=True)
    own = import_module(BENCHMARKS[config.task].module).plan(config, prompts)
    if not prompts:
        own = {"prompts": f"those of {config.prompts}, not on this machine: not checked"}
    paths = ", then ".join([config.model.path, *config.compare_to])
    lines = {
        "policy": f"{paths} on {find_device(config.device)}",
        **own,
        "sampler": _samplers(config, len(prompts) * config.completions_per_prompt),
        "rewards": ", ".join(map(key_of, config.rewards)) or "none",
        "output": ", ".join(filter(None, (config.output_dir, config.geneval_dir))),
    }
    samples = make_dummy_samples(config.task, prompts, FEW, config.model.image_size)
    probes = probe_rewards(
        config.rewards, "rewards", config.task, prompts, samples, config.max_failures
    )
    shown = [f"  {name:<9}{text}" for name, text in lines.items()]
    shown += describe_needs(config)
    shown += ["rewards", *(f"  {line}" for line in format_probes(list(probes)))]
    return "\n".join([to_yaml(config.to_dict()), "plan", *shown]) + "\n"


def _samplers(config: EvalConfig, rows: int) -> str:
    """The samplers with their steps and rows, a full batch where the prompts are not known."""
    width = min(rows or config.batch_size, config.batch_size)
    return "; ".join(
        f"{sampler.name}, {sampler.steps} steps of {width * sampler.guidance.sides} rows"
        f" each{f', length {length}' if length else ''}"
        for sampler, length in config.rows().values()
    )
