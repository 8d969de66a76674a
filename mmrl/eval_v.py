"""Benchmarks of image generation.

    python -m mmrl.eval_v config=configs/eval/shapes_t2i.yaml model.path=runs/quickstart/final

Writes `scores.json`, `table.txt`, a grid and, where asked, GenEval's folders into `output_dir`.
"""

from __future__ import annotations

import json
import math
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from PIL import Image

from eval.geneval_folder import write_folder
from eval.text_to_image import Table, as_text, by_tag
from mmrl.config import ConfigError, check, check_choice, load_config, to_yaml
from mmrl.data import load_prompts
from mmrl.device import find_device
from mmrl.evaluation import Evaluation, evaluate, write_grid
from mmrl.rl_config import ModelConfig, policy_options
from mmrl.run_directory import git_commit
from mmrl.samplers import SamplerConfig, check_sampler
from mmrl.types import Prompt
from models import load_policy
from rewards.scoring import RewardError, Scorer
from rewards.terms import check_entries

BENCHMARKS = {"text_to_image": by_tag}
"""Task -> how its scores become a table."""


@dataclass(kw_only=True)
class EvalConfig:
    """Settings of a benchmark."""

    output_dir: str = "runs/eval"
    """Where the results go."""
    task: str = "text_to_image"
    """What is benchmarked."""
    model: ModelConfig = field(default_factory=ModelConfig)
    """The policy."""
    device: str = "auto"
    """Where it runs; `auto` takes the GPU if there is one."""
    prompts: str = ""
    """Prompt file or hub id."""
    limit: int | None = None
    """At most this many prompts, taken at even distances; null takes all."""
    num_images_per_prompt: int = 1
    """Images per prompt."""
    batch_size: int = 64
    """Rows sampled at once; changes speed and memory only."""
    sampler: SamplerConfig = field(default_factory=SamplerConfig)
    """The sampler."""
    rewards: list[dict[str, Any]] = field(default_factory=list)
    """What scores the images; empty only writes them."""
    max_failures: float = 0.0
    """Failed scores allowed, see `rewards.scoring`."""
    seed: int = 0
    """Names every draw."""
    grid_images: int = 48
    """Images in the grid."""
    geneval_dir: str | None = None
    """Also write the images as GenEval's evaluator reads them."""
    dry_run: bool = False
    """Check everything, print the plan, and exit."""

    def __post_init__(self) -> None:
        check(self.model.path != "", "model.path", self.model.path, "a directory or a hub id")
        check(self.prompts != "", "prompts", self.prompts, "a prompt file or a hub id")
        for key in ("num_images_per_prompt", "batch_size"):
            check(getattr(self, key) >= 1, key, getattr(self, key), "at least 1")
        check_choice("task", self.task, BENCHMARKS)
        check_sampler(self.sampler)
        if self.rewards:
            check_entries(self.rewards)
        elif self.geneval_dir is None:
            raise ConfigError(
                "rewards is empty and geneval_dir is null: name a reward, such as {name: clip},"
                " or a folder for images that another program scores."
            )


def run(config: EvalConfig) -> dict[str, Table]:
    """Sample, score and write a benchmark.

    Returns:
        A table per reward.

    Raises:
        ConfigError, FileNotFoundError, ValueError, RewardError: see `load_policy` and `Scorer`.
    """
    prompts = load_prompts(config.prompts, config.task, limit=config.limit)
    device = find_device(config.device)
    scorer = Scorer(config.rewards, config.max_failures) if config.rewards else None
    out = Path(config.output_dir)
    out.mkdir(parents=True, exist_ok=True)
    policy = load_policy(**policy_options(config.model), device=device)
    result = evaluate(
        policy, prompts, config.sampler, scorer, seed=config.seed, batch_size=config.batch_size,
        num_samples=config.num_images_per_prompt, show_progress=True,
    )  # fmt: skip
    table = BENCHMARKS[config.task]
    tables = {key: table(result.prompts, scores) for key, scores in result.scores.items()}
    if tables:
        (out / "table.txt").write_text(as_text(tables), encoding="utf-8")
    (out / "scores.json").write_text(_scores(config, tables, result), encoding="utf-8")
    write_grid(result, out / "images.png", config.grid_images)
    if config.geneval_dir:
        images = [c for c in result.completions if isinstance(c, Image.Image)]
        write_folder(Path(config.geneval_dir), prompts, images)
    return tables


def describe(config: EvalConfig, prompts: Sequence[Prompt]) -> str:
    """Settings and plan; nothing is loaded."""
    tags = Counter(str(prompt.metadata.get("tag", "untagged")) for prompt in prompts)
    rows, sampler = len(prompts) * config.num_images_per_prompt, config.sampler
    width = min(rows, config.batch_size) * (2 if sampler.cfg_scale else 1)
    plan = {
        "policy": f"{config.model.path} on {find_device(config.device)}",
        "prompts": f"{len(prompts)}: {', '.join(f'{tag} {n}' for tag, n in tags.items())}",
        "images": f"{rows}, in {math.ceil(rows / config.batch_size)} batches",
        "sampler": f"{sampler.name}, {sampler.steps} steps of {width} rows each",
        "rewards": ", ".join(str(r.get("key", r["name"])) for r in config.rewards) or "none",
        "output": ", ".join(filter(None, (config.output_dir, config.geneval_dir))),
    }
    return "\n".join([to_yaml(config), "plan", *(f"  {k:<9}{v}" for k, v in plan.items())]) + "\n"


def _scores(config: EvalConfig, tables: dict[str, Table], result: Evaluation) -> str:
    """Settings, tables and every score, as JSON; a score that does not exist is null."""
    samples = [
        {"id": prompt.id, **{key: _finite(scores[n]) for key, scores in result.scores.items()}}
        for n, prompt in enumerate(result.prompts)
    ]
    head = {"commit": git_commit(), "config": asdict(config), "tables": tables}
    return json.dumps({**head, "samples": samples}, indent=1, allow_nan=False) + "\n"


def _finite(score: float) -> float | None:
    return score if math.isfinite(score) else None


def main(arguments: Sequence[str]) -> int:
    """Run the benchmark of the command line; return the exit status."""
    try:
        config = load_config(EvalConfig, arguments)
        if config.dry_run:
            prompts = load_prompts(config.prompts, config.task, limit=config.limit)
            sys.stdout.write(describe(config, prompts))
        else:
            tables = run(config)
            sys.stdout.write(as_text(tables) if tables else "no rewards, no scores\n")
            sys.stdout.write(f"written to {config.output_dir}\n")
    except (ConfigError, RewardError, OSError, ValueError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    except KeyboardInterrupt:
        sys.stderr.write("stopped\n")
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
