"""Whether runs of every family of latents begin where they sample.

    python scripts/bench/families.py
    accelerate launch --config_file configs/accelerate/fsdp2_cpu2.yaml scripts/bench/families.py

The last reads the pipelines that the first has written. They have random weights and are trained
for two steps by each method, all weights or an adapter, in float64. A JSON line for each run:
`ratio` and `kl` of the first step, which are 1 and 0; `gap`, the mean difference between log-probs
of the sampler and of the update; `later`, the KL of the second step, which is not 0; and `row`, how
far a row of a batch is from the row alone.
"""

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[2])]

from mmrl.config.command import Usage, read_settings  # noqa: E402

FAMILIES = ("sd3", "flux", "flux2_klein", "qwen_image", "z_image", "sana", "lumina_image")
WINDOW = "{name: cps, steps: 4, window_size: 2, window_range: [0, 3]}"
SAMPLERS = {
    "flow_grpo": "{name: flow, steps: 4}",
    "flow_grpo_fast": WINDOW,
    "grpo_guard": "{name: flow, steps: 4}",
    "flow_dppo": "{name: flow, steps: 4}",
    "dance_grpo": "{name: dance, steps: 4, noise_level: 0.3}",
    "mix_grpo": "{name: flow, steps: 4, shared_noise: true, window_rule: progressive,"
    " window_size: 2, window_iterations: 1, window_roll_back: true}",
    "tempflow_grpo": "{name: flow, steps: 4, shared_noise: true, window_size: 1}",
    "flash_grpo": "{name: flow, steps: 4, window_rule: stratified, window_size: 1}",
}
"""Methods and how they sample."""
TRAINED = {"all": "null", "lora": "{r: 4, target_modules: [q, k, v, o]}"}


@dataclass(kw_only=True)
class Setting:
    """What is run; `key=value` on the command line changes it."""

    families: list[str] = field(default_factory=lambda: [*FAMILIES])
    """Of `scripts/pipeline_skeletons.py`."""
    methods: list[str] = field(default_factory=lambda: [*SAMPLERS])
    """Presets of `configs/algorithm`."""
    trained: list[str] = field(default_factory=lambda: [*TRAINED])
    """What is trained: all weights, or an adapter (lora)."""
    folder: str = "runs/families"
    """Where pipelines and runs are written."""


if __name__ == "__main__":  # before the seconds that torch takes
    USAGE = Usage("python scripts/bench/families.py", __doc__, Setting)
    SETTING = read_settings(USAGE, sys.argv[1:])

import torch  # noqa: E402
from text_sampling import report  # noqa: E402

from mmrl.config import load_config  # noqa: E402
from mmrl.models import load_policy  # noqa: E402
from mmrl.randomness import generator  # noqa: E402
from mmrl.rl import train  # noqa: E402
from mmrl.rl_config import RLConfig  # noqa: E402
from mmrl.run.metrics_file import read_metrics  # noqa: E402
from mmrl.samplers import SamplerConfig, sample  # noqa: E402
from mmrl.types import Prompt  # noqa: E402
from scripts.pipeline_skeletons import PIPELINES  # noqa: E402

PROCESSES = int(os.environ.get("WORLD_SIZE", "1"))
IS_MAIN = os.environ.get("RANK", "0") == "0"


def check(family: str, folder: Path, s: Setting) -> Iterator[dict[str, Any]]:
    """Lines of a family."""
    model = folder / family
    if not model.exists():
        torch.manual_seed(0)
        PIPELINES[family](model, width=128, layers=1)
    row = find_difference(model)
    for trained in s.trained:
        for method in s.methods:
            name = f"{family}_{method}_{trained}_{PROCESSES}"
            out = run(folder / name, model, family, method, trained)
            if IS_MAIN:
                lines = read_metrics(out / "metrics.jsonl")
                first, second = (line for line in lines if "loss" in line)
                yield {
                    **{"family": family, "method": method, "trained": trained},
                    **{"processes": PROCESSES, "ratio": first["ratio"], "kl": first["kl"]},
                    "gap": first["sampling/sampling_logp_difference/mean"],
                    **{"later": second["kl"], "row": row},
                }


def run(out: Path, model: Path, family: str, method: str, trained: str) -> Path:
    """Two steps; where its metrics are."""
    words = {
        **{"output_dir": out, "model.path": model, "model.max_prompt_length": 48},
        "model.image_size": 64 if family == "sana" else 32,
        "model.dtype": "float64",
        "model.lora": TRAINED[trained],
        "tasks.shapes.prompts": "datasets/shapes/train.jsonl",
        "tasks.shapes.num_prompts": 2,
        "tasks.shapes.num_generations": 4,
        "tasks.shapes.sampler": SAMPLERS[method],
        "tasks.shapes.rewards": "[{name: jpeg}]",
        "tasks.shapes.algorithm": f"{{name: {method}, beta: 0.04, kl: gaussian}}",
        "per_device_train_batch_size": 2,
        "max_steps": 2,
        **{"save_steps": 0, "learning_rate": 1e-3, "bf16": "false"},
    }
    return train(load_config(RLConfig, [f"{key}={value}" for key, value in words.items()]))


def find_difference(model: Path) -> float:
    """The largest difference between rows of a batch and the same rows alone, as a share of the
    largest number of their latents."""
    policy = load_policy(model, max_prompt_length=48, image_size=64, dtype="float64")
    prompts = [
        Prompt("0", "text_to_image", "a red cat on the sofa"),
        Prompt("1", "text_to_image", "a dog"),
        Prompt("2", "text_to_image", "a bird", metadata={"height": 96, "width": 64}),
    ]
    config = SamplerConfig(name="flow", steps=4, cfg_scale=1.5)
    draws = [generator("bench", n) for n in range(len(prompts))]
    path = sample(policy, policy.canvas(prompts), config, draws).canvas.path
    largest = 0.0
    for n, prompt in enumerate(prompts):
        alone = sample(policy, policy.canvas([prompt]), config, [generator("bench", n)]).canvas
        found = path[n, :, : alone.path.shape[-1]] - alone.path[0]
        largest = max(largest, float(found.abs().max() / alone.path.abs().max()))
    return largest


if __name__ == "__main__":
    for each in SETTING.families:
        for line in check(each, Path(SETTING.folder), SETTING):
            report("families", SETTING, line)
