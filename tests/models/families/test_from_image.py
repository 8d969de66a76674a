"""What families that write from a source image promise, against the installed pipelines of
diffusers: FLUX.1-Kontext, Qwen-Image-Edit, Wan 2.1 and 2.2.

The pipelines are those of `scripts/pipeline_skeletons.py`, and all their weights matter.
"""

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from diffusers.pipelines.qwenimage import pipeline_qwenimage_edit
from PIL import Image
from torch import Tensor

from mmrl.algorithms import AlgorithmConfig
from mmrl.estimators import draw_passes, score
from mmrl.models import Policy, load_policy
from mmrl.samplers import SamplerConfig, sample
from mmrl.types import Prompt, Rollout
from scripts.pipeline_skeletons import PIPELINES, write_wan
from tests.mmrl.flow_runs import TASK
from tests.mmrl.runs import metrics
from tests.mmrl.test_flow_rl import METHODS, run
from tests.models.families.test_latent_families import LIBRARY, close, pack, public, state
from tests.models.flow import draw_pipeline, seeded

STEPS, LENGTH, TEXT = 3, 64, "a red cat on the sofa"
EDITS = {"flux_kontext": 2.5, "qwen_image_edit": 0.0}
"""Families that edit, and the guidance that their networks are given."""
VIDEOS = {"Wan2.1-I2V-14B": 0.05, "Wan2.2-I2V-A14B": 0.05, "Wan2.2-5B": 0.05}


def draw_image(height: int, width: int, seed: int = 0) -> Image.Image:
    pixels = np.random.default_rng(seed).integers(0, 256, (height // 8, width // 8, 3), np.uint8)
    return Image.fromarray(pixels).resize((width, height), Image.Resampling.BICUBIC)


def ask(task: str, image: Image.Image, text: str = TEXT, **metadata: Any) -> Prompt:
    size = {"height": image.height, "width": image.width}
    return Prompt(text, task, text, images=[image], metadata={**size, **metadata})


def make(folder: Path, write: Any, scale: float) -> Policy:
    """A policy of random weights, moved, and its pipeline in `moved`."""
    return load_policy(draw_pipeline(folder, write, scale, LENGTH), max_prompt_length=LENGTH)


@pytest.fixture(scope="module", params=EDITS)
def editor(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp(request.param)
    return make(folder, PIPELINES[request.param], 0.05), folder / "moved", request.param


@pytest.fixture(scope="module", params=VIDEOS)
def filmer(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder, name = tmp_path_factory.mktemp(request.param), request.param
    write = lambda path, **sizes: write_wan(path, **sizes, name=name)  # noqa: E731
    return make(folder, write, VIDEOS[name]), folder / "moved", name


def write(policy: Policy, prompts: list[Prompt], **settings: Any) -> Rollout:
    config = SamplerConfig(**{"name": "ode", "steps": STEPS, "cfg_scale": 1.5, **settings})
    return sample(policy, policy.canvas(prompts), config, seeded(range(len(prompts))))


def replay(policy: Policy, rollout: Rollout) -> Tensor:
    passes = draw_passes(rollout, AlgorithmConfig(strategy="replay"), seeded([0]))
    return score(policy, rollout.canvas, passes, 1.5).logprobs.sum(0)


def test_an_edit_is_that_of_the_pipeline(editor: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    policy, folder, name = editor
    image = draw_image(64, 96)
    rollout = write(policy, [ask("image_edit", image)])
    pipeline, sides = public(folder), (image.width, image.height)
    monkeypatch.setattr(pipeline_qwenimage_edit, "calculate_dimensions", lambda *_: (*sides, None))
    given: dict[str, Any] = {"height": 64, "width": 96, "latents": pack(state(rollout, 0))}
    given |= {"guidance_scale": EDITS[name]} if EDITS[name] else {}
    own = {"max_area": 64 * 96, "_auto_resize": False} if name == "flux_kontext" else {}
    text = {"prompt": TEXT, "negative_prompt": "" if own else " ", "true_cfg_scale": 2.5}
    options = {"num_inference_steps": STEPS, "output_type": "latent"}
    options["max_sequence_length"] = LENGTH
    close(pack(state(rollout, -1)), pipeline(image=image, **text, **given, **own, **options).images)
    other = write(policy, [ask("image_edit", draw_image(64, 96, 1))])
    assert (state(other, -1) - state(rollout, -1)).abs().max() > 1e-2


def test_kontext_draws_without_an_image_as_well(editor: Any) -> None:
    policy, folder, name = editor
    if name != "flux_kontext":
        assert "text_to_image" not in policy.layouts
        return
    prompt = Prompt("0", "text_to_image", TEXT, metadata={"height": 64, "width": 96})
    rollout = write(policy, [prompt], cfg_scale=0.0)
    given = {"latents": pack(state(rollout, 0)), "max_area": 64 * 96, "guidance_scale": 2.5}
    given |= {"num_inference_steps": STEPS, "max_sequence_length": LENGTH, "output_type": "latent"}
    known = public(folder)(prompt=TEXT, height=64, width=96, **given).images
    close(pack(state(rollout, -1)), known)


def test_a_video_from_its_first_frame_is_that_of_the_pipeline(filmer: Any) -> None:
    policy, folder, _ = filmer
    side = 64 if policy.network.patch * policy.layouts["image_to_video"].pixels == 32 else 32
    image = draw_image(side, side + 32)
    prompt = ask("image_to_video", image, num_frames=9)
    rollout = write(policy, [prompt], sigma_rule="static_twice")
    drawn = public(folder)
    parts = {**drawn.components, "scheduler": LIBRARY.FlowMatchEulerDiscreteScheduler(shift=3.0)}
    parts |= {name: parts.get(name) for name in ("image_encoder", "image_processor")}
    config = {name: drawn.config[name] for name in ("boundary_ratio", "expand_timesteps")}
    pipeline = LIBRARY.WanImageToVideoPipeline(**parts, **config)
    pipeline.set_progress_bar_config(disable=True)
    size = {"height": side, "width": side + 32, "num_frames": 9, "max_sequence_length": 512}
    given = {"latents": state(rollout, 0), "num_inference_steps": STEPS, "output_type": "latent"}
    close(state(rollout, -1), pipeline(image, prompt=TEXT, guidance_scale=2.5, **size, **given)[0])
    other = write(policy, [replace(prompt, images=[draw_image(side, side + 32, 1)])])
    assert (state(other, -1) - state(rollout, -1)).abs().max() > 1e-2


@pytest.mark.parametrize("task", ["image_edit", "image_to_video"])
def test_ratios_are_one_and_rows_of_mixed_sizes_are_rows_alone(task: str, tmp_path: Path) -> None:
    if task == "image_edit":
        policy = make(tmp_path, PIPELINES["qwen_image_edit"], 0.05)
    else:
        policy = make(tmp_path, lambda p, **s: write_wan(p, **s, name="Wan2.2-5B"), 0.05)
    frames = {"num_frames": 5} if task == "image_to_video" else {}
    sizes = ((64, 96), (96, 64), (64, 96))
    prompts = [
        ask(task, draw_image(*size, seed=n), f"{TEXT} {n}", **frames)
        for n, size in enumerate(sizes)
    ]
    whole = write(policy, prompts, name="flow", window_range=[0, STEPS])
    assert torch.equal(replay(policy, whole), whole.logprobs)
    for row, prompt in enumerate(prompts):
        config = SamplerConfig(name="flow", steps=STEPS, cfg_scale=1.5, window_range=[0, STEPS])
        alone = sample(policy, policy.canvas([prompt]), config, seeded([row]))
        own = alone.canvas.path[0]
        close(whole.canvas.path[row, :, : own.shape[-1]], own)
        close(whole.logprobs[row], alone.logprobs[0], 1e-3)
    halves = [copy.copy(whole.canvas)[[0, 1]], whole.canvas[[2]]]
    joined = type(whole.canvas).join(halves)
    assert torch.equal(joined.condition()["source"], whole.canvas.condition()["source"])


RUNS = {
    "flux_kontext": (
        "image_edit",
        "[{name: 'tests/mmrl/runs.py:redness'}, {name: shapes_edit, mode: partial, key: partial}]",
    ),
    "wan_image_to_video": (
        "image_to_video",
        "[{name: 'tests/models/families/test_wan.py:red_video'}]",
    ),
}


@pytest.mark.parametrize("family", RUNS)
def test_a_run_begins_where_it_samples(family: str, tmp_path: Path) -> None:
    task, rewards = RUNS[family]
    make(tmp_path, PIPELINES[family], 0.05)
    own = [f"model.path={tmp_path / 'moved'}", "model.max_prompt_length=64", METHODS["lora"][0]]
    own += ["model.num_frames=5", f"{TASK}.task={task}", f"{TASK}.rewards={rewards}"]
    own += [f"{TASK}.diversity=[]", f"{TASK}.sampler.window_range=[0, 3]", "save_steps=0"]
    own += [f"{TASK}.algorithm.beta=0.04", "model.unload_text_encoders=true"]
    own += [f"model.encodings_dir={tmp_path / 'encodings'}"]
    prompts, rows = tmp_path / "edits.jsonl", Path("datasets/shapes/edits_test.jsonl").read_text()
    prompts.write_text("".join(rows.splitlines(keepends=True)[:4]))
    out = run(prompts, tmp_path / "run", *own)
    first, second = metrics(out)
    assert first["sampling/sampling_logp_difference/mean"] < 1e-6
    assert first["ratio"] == pytest.approx(1, abs=1e-6) and first["kl"] == 0 != second["kl"]


def test_a_prompt_without_one_image_is_refused_with_its_name(editor: Any) -> None:
    policy, *_ = editor
    prompt = replace(ask("image_edit", draw_image(64, 96)), images=[])
    with pytest.raises(ValueError, match="has 0 images"):
        policy.canvas([prompt])
