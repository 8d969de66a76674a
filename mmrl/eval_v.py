"""Benchmarks of image generation.

    python -m mmrl.eval_v config=configs/eval/shapes_t2i.yaml model.path=runs/quickstart/final

Writes `scores.json`, `table.txt`, a grid and, where asked, GenEval's folders into `output_dir`.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from PIL import Image

from eval.geneval_folder import write_folder
from eval.text_to_image import Table, as_text, by_tag
from mmrl.config import ConfigError, check, check_choice, load_config
from mmrl.data import load_prompts
from mmrl.evaluation import Evaluation, evaluate, write_grid
from mmrl.rl_config import ModelConfig, policy_options
from mmrl.samplers import RULES, SamplerConfig
from models import load_policy
from rewards import check_reward
from rewards.scoring import RewardError, Scorer

logger = logging.getLogger(__name__)

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
    device: str = "cpu"
    """Where it runs."""
    prompts: str = ""
    """Prompt file or hub id."""
    limit: int | None = None
    """At most this many prompts; null takes all."""
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
    geneval_dir: str | None = None
    """Also write the images as GenEval's evaluator reads them."""

    def __post_init__(self) -> None:
        check(self.model.path != "", "model.path", self.model.path, "a directory or a hub id")
        check(self.prompts != "", "prompts", self.prompts, "a prompt file or a hub id")
        for key in ("num_images_per_prompt", "batch_size"):
            check(getattr(self, key) >= 1, key, getattr(self, key), "at least 1")
        check_choice("task", self.task, BENCHMARKS)
        check_choice("sampler.name", self.sampler.name, RULES)
        for n, entry in enumerate(self.rewards):
            check_reward(entry, f"rewards[{n}]")


def run(config: EvalConfig) -> dict[str, Table]:
    """Sample, score and write a benchmark.

    Returns:
        A table per reward.

    Raises:
        ConfigError, FileNotFoundError, ValueError, RewardError: see `load_policy` and `Scorer`.
    """
    prompts = load_prompts(config.prompts, config.task)[: config.limit]
    policy = load_policy(**policy_options(config.model), device=config.device)
    scorer = Scorer(config.rewards, config.max_failures) if config.rewards else None
    result = evaluate(
        policy, prompts, config.sampler, scorer, seed=config.seed,
        batch_size=config.batch_size, num_samples=config.num_images_per_prompt,
    )  # fmt: skip
    table = BENCHMARKS[config.task]
    tables = {key: table(result.prompts, scores) for key, scores in result.scores.items()}
    out = Path(config.output_dir)
    out.mkdir(parents=True, exist_ok=True)
    (out / "table.txt").write_text(as_text(tables))
    (out / "scores.json").write_text(_scores(config, tables, result))
    write_grid(result, out / "images.png", count=64)
    if config.geneval_dir:
        images = [c for c in result.completions if isinstance(c, Image.Image)]
        write_folder(Path(config.geneval_dir), prompts, images)
    return tables


def _scores(config: EvalConfig, tables: dict[str, Table], result: Evaluation) -> str:
    """Settings, tables and every score, as JSON."""
    samples = [
        {"id": prompt.id, **{key: scores[n] for key, scores in result.scores.items()}}
        for n, prompt in enumerate(result.prompts)
    ]
    return json.dumps({"config": asdict(config), "tables": tables, "samples": samples}, indent=1)


def main(arguments: Sequence[str]) -> int:
    """Run the benchmark of the command line; return the exit status."""
    try:
        config = load_config(EvalConfig, arguments)
        sys.stdout.write(as_text(run(config)))
    except (ConfigError, RewardError, FileNotFoundError, ValueError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
