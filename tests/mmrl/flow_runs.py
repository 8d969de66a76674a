"""A short run of a policy that denoises latents."""

from pathlib import Path

from tests.models.flow import LENGTH, PIPELINE

TASK = "tasks.shapes"


def words(prompts: Path, out: Path, *more: str) -> list[str]:
    """A short run in which redder images are better."""
    method = "{name: grpo, strategy: replay, kl: gaussian_rate, adv_clip_max: 5, epsilon: 0.01}"
    return (
        [f"output_dir={out}", f"model.path={PIPELINE}", f"model.max_prompt_length={LENGTH}"]
        + ["model.image_size=32", f"{TASK}.prompts={prompts}", f"{TASK}.num_prompts=2"]
        + [f"{TASK}.num_generations=4", f"{TASK}.sampler={{name: flow, steps: 3}}"]
        + [f"{TASK}.rewards=[{{name: 'tests/mmrl/runs.py:redness'}}]"]
        + [f"{TASK}.algorithm={method}", "per_device_train_batch_size=2", "learning_rate=1e-3"]
        + ["adam_epsilon=1e-3", "max_steps=2", "save_steps=1", "bf16=false", "model.dtype=float64"]
        + [*more]
    )
