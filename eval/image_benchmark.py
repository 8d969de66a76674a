"""What `mmrl.eval_v` runs for images: samples scored, their tables, grid and folders written."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from PIL import Image

from eval.benchmark import json_scores, passes, reward_keys, sample_all
from eval.evaluation import Evaluation, scored, write_grid
from eval.geneval_folder import write_folder
from eval.image_config import EvalConfig
from eval.image_table import Table, as_text, by_tag
from mmrl.config import to_plain
from mmrl.run.environment import git_commit
from mmrl.types import Prompt


def run(config: EvalConfig) -> dict[str, Table] | None:
    """Sample, score and write a benchmark.

    Returns:
        A table per reward; None on all processes but the main one.

    Raises:
        ConfigError, FileNotFoundError, ValueError: see `sample_all`.
        RewardError: a reward failed more often than `max_failures` allows.
    """
    sampled = sample_all(config, config.settings, config.num_images_per_prompt)
    if sampled is None:
        return None
    [batches] = sampled.batches.values()
    result = scored(sampled.rows, batches, sampled.scorer)
    out = Path(config.output_dir)
    tables = {key: by_tag(result.prompts, scores) for key, scores in result.scores.items()}
    text = as_text(tables) if tables else "no rewards, no scores\n"
    (out / "table.txt").write_text(text, encoding="utf-8")
    (out / "scores.json").write_text(_scores(config, tables, result), encoding="utf-8")
    write_grid(result, out / "images.png", config.grid_images)
    if config.geneval_dir:
        images = [c for c in result.completions if isinstance(c, Image.Image)]
        prompts = result.prompts[:: config.num_images_per_prompt]
        write_folder(Path(config.geneval_dir), prompts, images)
    return tables


def plan_of(config: EvalConfig, prompts: Sequence[Prompt]) -> dict[str, str]:
    """What a run would do; nothing is loaded."""
    tags = Counter(str(prompt.metadata.get("tag", "untagged")) for prompt in prompts)
    rows = len(prompts) * config.num_images_per_prompt
    return {
        "prompts": f"{len(prompts)}: {', '.join(f'{tag} {n}' for tag, n in tags.items())}",
        "images": f"{rows}, in {math.ceil(rows / config.batch_size)} batches",
        "sampler": passes(config.settings, rows, config.batch_size),
        "rewards": reward_keys(config),
        "output": ", ".join(filter(None, (config.output_dir, config.geneval_dir))),
    }


def _scores(config: EvalConfig, tables: dict[str, Table], result: Evaluation) -> str:
    """Settings, tables and every score, as JSON; a score that does not exist is null."""
    samples = [
        {"id": prompt.id, **json_scores(result.scores, n)}
        for n, prompt in enumerate(result.prompts)
    ]
    head = {"commit": git_commit(), "config": to_plain(config), "tables": tables}
    return json.dumps({**head, "samples": samples}, indent=1, allow_nan=False) + "\n"
