"""What a run of a latent policy refuses before its weights load."""

import json
import shutil
from pathlib import Path

import pytest

from mmrl.config import load_config
from mmrl.planning.plan import describe
from mmrl.rl_config import RLConfig

ROOT = Path(__file__).resolve().parents[2]
PIPELINE = ROOT / "tests/fixtures/flow_sd3/pipeline"


def refuse(tmp_path: Path, *words: str, path: Path = PIPELINE) -> str:
    """The message with which a plan of Flow-GRPO on a pipeline is refused."""
    task = (
        {"prompts": str(ROOT / "datasets/shapes/train.jsonl"), "num_prompts": 2}
        | {"num_generations": 2, "sampler": {"name": "flow", "steps": 4}, "diversity": []}
        | {"rewards": [{"name": "jpeg"}], "algorithm": {"name": "flow_grpo"}}
    )
    options = [f"output_dir={tmp_path / 'run'}", f"model.path={path}", "dry_run=true"]
    given = [*options, f"tasks={json.dumps({'shapes': task})}", *words]
    with pytest.raises((ValueError, FileNotFoundError)) as caught:
        describe(load_config(RLConfig, given))
    return str(caught.value)


REFUSED = """
sampler.name=ode -> sampler.name is 'ode' | cps or dance or flow
sampler.window_range=[2,9] -> window_range is [2, 9] | the 4 steps
sampler.sigma_rule=cosine -> sigma_rule is 'cosine' | static_twice
sampler.guidance_scale=4.5 -> sampler.guidance_scale | guidance_scale less 1
sampler.num_inference_steps=4 -> num_inference_steps | diffusers calls so is steps
num_generations=1 -> num_generations is 1 | at least 2
max_completion_length=9 -> max_completion_length is 9 | null for images
algorithm.strategy=random -> strategy: random scores tokens | change strategy
algorithm.temperature=0.5 -> temperature is 0.5 | use temperature: 1
algorithm.top_entropy_quantile=0.5 -> top_entropy_quantile is 0.5 | use top_entropy_quantile: 1
algorithm.completion_value.slices=2 -> deviation is population | change completion_value
task=text -> model.path | for the task text
"""


@pytest.mark.parametrize("row", REFUSED.strip().splitlines())
def test_a_setting_that_a_latent_policy_has_not_is_named_with_what_is_allowed(
    row: str, tmp_path: Path
) -> None:
    word, named = row.split(" -> ")
    message = refuse(tmp_path, f"tasks.shapes.{word}")
    assert all(part in message for part in named.split(" | ")), message


def test_sizes_and_parts_that_do_not_exist_are_named(tmp_path: Path) -> None:
    assert "multiples of 16" in refuse(tmp_path, "model.image_size=72")
    assert "text_encoder_3" in refuse(tmp_path, "model.without_parts=[text_encoder_9]")


def test_a_directory_that_is_no_whole_flow_pipeline_is_refused_by_name(tmp_path: Path) -> None:
    def change(file: str, **values: object) -> Path:
        folder = tmp_path / "pipeline"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(PIPELINE, folder)
        content = json.loads((folder / file).read_text()) | values
        (folder / file).write_text(json.dumps(content))
        return folder

    folder = change("vae/config.json", latent_channels=8)
    assert "16 channels, and the vae writes 8" in refuse(tmp_path, path=folder)
    scheduler = {"_class_name": "DDPMScheduler", "prediction_type": "epsilon"}
    folder = change("scheduler/scheduler_config.json", **scheduler)
    assert "DDPMScheduler (epsilon)" in refuse(tmp_path, path=folder)
    folder = change("model_index.json", _class_name="PixArtSigmaPipeline")
    assert "PixArtSigmaPipeline" in refuse(tmp_path, path=folder)
    shutil.rmtree(folder / "vae")
    assert "lacks vae/config.json" in refuse(tmp_path, path=folder)


WITHOUT_GRADIENT = """
rewards=[{name: jpeg}] -> rewards[0].name is 'jpeg' | weight: 0
rewards=[{name: clip, mode: client, url: 'http://h:1'}] -> rewards[0].name | gradient
sampler.name=flow -> sampler.name is 'flow' | ode, as strategy: last_steps
sampler.cfg_scale=1.5 -> sampler.cfg_scale is 1.5 | 0, as strategy
algorithm.cfg_scale=1.5 -> algorithm.cfg_scale is 1.5 | 0, as strategy
algorithm.grad_steps=5 -> algorithm.grad_steps is 5 | at most 4
algorithm.exit_range=0.5; algorithm.grad_steps=4 -> grad_steps is 4 | at most 3
algorithm.contrast=dgpo -> contrast is dgpo | use contrast: none
algorithm.bound=elbo -> bound is elbo | use bound: token
algorithm.kl=k3; algorithm.beta=0.1 -> kl is k3 | use kl: velocity
sampler={name: static, steps: 4} -> strategy is 'last_steps' | a masked canvas
"""


@pytest.mark.parametrize("row", WITHOUT_GRADIENT.strip().splitlines())
def test_what_has_no_gradient_is_refused_with_methods_that_follow_it(
    row: str, tmp_path: Path
) -> None:
    words, named = row.split(" -> ")
    task = "tasks.shapes"
    glow = f"{task}.rewards=[{{name: 'tests/mmrl/runs.py:glow'}}]"
    start = [f"{task}.sampler.name=ode", f"{task}.algorithm={{name: draft}}", glow]
    message = refuse(tmp_path, *start, *(f"{task}.{word}" for word in words.split("; ")))
    assert all(part in message for part in named.split(" | ")), message


def test_rewards_that_updates_ask_are_not_moved_away(tmp_path: Path) -> None:
    glow = "tasks.shapes.rewards=[{name: 'tests/mmrl/runs.py:glow'}, {name: jpeg, weight: 0}]"
    start = ["tasks.shapes.sampler.name=ode", "tasks.shapes.algorithm={name: refl}", glow]
    assert "offload is True" in refuse(tmp_path, *start, "offload=true")
