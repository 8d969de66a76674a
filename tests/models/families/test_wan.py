"""What Wan promises: its latents and frames are those of the public codes.

`tests/fixtures/flow_wan` has the transformer of a tiny Wan 2.1, whose weights bfloat16 holds as
they are, and what diffusers 0.42.0 and zhtmike/flow_grpo@9745241 compute with it in float32.
"""

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import diffusers
import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file
from torch import Tensor

from mmrl.algorithms import AlgorithmConfig
from mmrl.config import ConfigError
from mmrl.estimators import draw_passes, score
from mmrl.eval_v import main as eval_v
from mmrl.generation.flow import sampler
from mmrl.generation.flow.sampler_config import SolverConfig
from mmrl.models import Policy, load_policy
from mmrl.models.families import get_family
from mmrl.models.families.wan import TEXT_TOKENS, WanNetwork
from mmrl.pretrained.known import SIZES
from mmrl.run.sample_files import read_samples
from mmrl.samplers import SamplerConfig, sample
from mmrl.types import Prompt, Sample, Video
from mmrl.types.video import read_clip
from scripts.pipeline_skeletons import write_wan
from tests.mmrl.flow_runs import TASK
from tests.mmrl.runs import metrics
from tests.mmrl.test_flow_rl import METHODS, run
from tests.models.families.test_latent_families import (
    STEPS,
    TEXTS,
    close,
    public,
    read_by_others,
    state,
    watch,
    write,
)
from tests.models.flow import draw_pipeline, seeded
from tests.models.kept_bytes import count_kept
from tests.models.networks import FIXTURES

LIBRARY: Any = diffusers
CASES = load_file(FIXTURES / "flow_wan" / "cases.safetensors")
SIZE = {"height": 32, "width": 48, "num_frames": 9}
LENGTH = 24


def ask(*texts: str, **metadata: Any) -> list[Prompt]:
    return [
        Prompt(str(n), "text_to_video", text, metadata=metadata) for n, text in enumerate(texts)
    ]


def load(path: Path, **options: Any) -> Policy:
    return load_policy(path, max_prompt_length=LENGTH, **options)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pipeline of random weights."""
    return draw_pipeline(tmp_path_factory.mktemp("wan"), write_wan, 0.05, LENGTH)


@pytest.fixture(scope="module")
def policy(folder: Path) -> Policy:
    return load(folder)


@pytest.mark.parametrize("case", ["euler/g5", "flow_grpo/sde"])
def test_the_rollout_and_replay_are_those_of_diffusers_and_flow_grpo(
    policy: Policy, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    network: Any = WanNetwork(json.loads((FIXTURES / "flow_wan" / "config.json").read_text()))
    weights = load_file(FIXTURES / "flow_wan" / "transformer.safetensors")
    network.transformer.load_state_dict({key: each.float() for key, each in weights.items()})
    own = replace(policy, network=network, model=network)
    canvas: Any = policy.canvas(ask(*TEXTS, **SIZE))
    canvas.shapes, canvas.text = [(4, 3, 4, 6)] * 2, torch.arange(2)
    embeds, negative = CASES["in/prompts/embeds"], CASES["in/prompts/negative"]
    canvas.texts, canvas.empty = {"states": torch.cat([embeds, negative])}, torch.arange(2, 4)
    known, drawn, sigmas = CASES[f"{case}/latents"], CASES.get(f"{case}/noises"), None

    def draw(seeds: Any, purpose: str | int, *_: Any) -> Tensor:
        return (known[0] if drawn is None or isinstance(purpose, str) else drawn[purpose]).flatten(
            1
        )

    monkeypatch.setattr(sampler, "draw_noise", draw)
    sigmas, forward = CASES[f"{case}/sigmas"], network.transformer.forward
    if drawn is not None:  # UniPC truncates its times
        monkeypatch.setattr(SolverConfig, "make_sigmas", lambda *_: sigmas)
        cut = lambda timestep, **more: forward(timestep=timestep.floor(), **more)  # noqa: E731
        network.transformer.forward = cut
    noisy = {"name": "flow_wan", "noise_level": 1.0, "window_range": [0, 5]}
    settings = noisy if drawn is not None else {"name": "ode", "sigma_rule": "static_twice"}
    config = SamplerConfig(**{"steps": 5, "cfg_scale": 4.0, **settings})
    rollout: Any = sample(own, canvas, config, seeded([0, 1]))
    close(rollout.canvas.written[0].transpose(0, 1), known.flatten(2))
    close(rollout.canvas.sigmas[0], sigmas, 1e-6)
    if drawn is not None:
        close(rollout.logprobs.T, CASES[f"{case}/log_probs"], 1e-3)
        passes = draw_passes(rollout, AlgorithmConfig(strategy="replay"), seeded([0, 1]))
        assert torch.equal(
            score(own, rollout.canvas, passes, 4.0).logprobs.sum(0), rollout.logprobs
        )


def same_as_the_pipeline(
    folder: Path, policy: Policy, rollout: Any, w: float, size: dict[str, int], calls: list[Any]
) -> list[Video]:
    """Assert that latents and frames of a deterministic walk are those of the pipeline, whose calls
    of the transformer are noted; the videos."""
    steps: list[Tensor] = []

    def note(_: Any, __: int, ___: Any, values: dict[str, Any]) -> dict[str, Any]:
        steps.append(values["latents"].clone())
        return values

    pipeline = public(folder)
    pipeline.scheduler = LIBRARY.FlowMatchEulerDiscreteScheduler(shift=3.0)
    watch(pipeline.transformer, calls)
    given = {"latents": state(rollout, 0), "callback_on_step_end": note, "output_type": "np"}
    given |= {"guidance_scale": 1 + w, "num_inference_steps": STEPS, **size}
    drawn = pipeline(prompt=[*TEXTS], max_sequence_length=TEXT_TOKENS, **given).frames
    close(rollout.canvas.sigmas[0], pipeline.scheduler.sigmas, 1e-6)
    for n, latents in enumerate(steps):
        close(state(rollout, n + 1), latents)
    videos: Any = policy.decode(rollout.canvas, ask(*TEXTS, **size))
    for video, frames in zip(videos, drawn, strict=True):
        assert abs(video.frames - frames * 255.0).max() <= 1
    return videos


@pytest.mark.parametrize("w", [0.0, 2.5])
def test_latents_frames_and_calls_are_those_of_the_pipeline(
    folder: Path, policy: Policy, w: float
) -> None:
    known, calls = [], []
    hook = watch(policy.network.transformer, calls)
    rollout = write(
        policy, ask(*TEXTS, **SIZE), [0, 1], name="ode", cfg_scale=w, sigma_rule="static_twice"
    )
    hook.remove()
    videos = same_as_the_pipeline(folder, policy, rollout, w, SIZE, known)
    assert (state(rollout, -1) - state(rollout, 0)).abs().max() > 0.5
    for n, call in enumerate(known):
        branches = 2 if w else 1
        for key in ("timestep", "encoder_hidden_states"):
            close(calls[n // branches][key].chunk(branches)[n % branches], call[key])
    assert all(video.frames.shape == (9, 32, 48, 3) and video.fps == 16 for video in videos)


def test_a_row_of_a_batch_of_mixed_sizes_is_the_row_alone(policy: Policy) -> None:
    mixed = [*ask(*TEXTS, **SIZE), *ask("x", height=48, width=32, num_frames=5)]
    whole = write(policy, mixed, [0, 1, 2])
    videos: Any = policy.decode(whole.canvas, mixed)
    assert [video.frames.shape[:3] for video in videos] == [(9, 32, 48), (9, 32, 48), (5, 48, 32)]
    for row, prompt in enumerate(mixed):
        alone = write(policy, [prompt], [row])
        close(whole.canvas.path[row, :, : alone.canvas.path.shape[-1]], alone.canvas.path[0])
        close(whole.logprobs[row], alone.logprobs[0], 1e-3)


def test_the_schedule_without_a_rule_is_within_002_of_that_of_unipc(policy: Policy) -> None:
    found = write(policy, ask("x", **SIZE), [0], steps=5).canvas.sigmas[0]
    assert (found - CASES["flow_grpo/sde/sigmas"]).abs().max() < 2e-3


def test_clips_and_pixels_are_what_the_video_shows(policy: Policy) -> None:
    prompts = ask(TEXTS[0], **SIZE)
    rollout = write(policy, prompts, [0])
    video: Any = policy.decode(rollout.canvas, prompts)[0]
    [pixels] = policy.render(rollout.canvas, prompts)
    assert pixels.shape == (9, 3, 32, 48)
    shown = pixels.detach().permute(0, 2, 3, 1).numpy() * 255
    assert abs(shown - video.frames).max() <= 0.51


def test_tiles_change_only_large_frames(folder: Path) -> None:
    parts: Any = load(folder, vae_tiling=True).network.parts
    assert parts.decoder.vae.use_tiling


@pytest.mark.parametrize(
    ("metadata", "text"),
    [
        ({"num_frames": 8}, "num_frames is 8; it must be 1 more than a multiple of 4"),
        ({"num_frames": "9"}, "num_frames is '9'"),
        ({"height": 40}, "multiples of 16"),
    ],
)
def test_a_video_that_is_no_whole_number_of_tokens_is_refused(
    policy: Policy, metadata: dict[str, Any], text: str
) -> None:
    with pytest.raises(ValueError, match=text):
        policy.fits(ask("x", **{**SIZE, **metadata})[0])


def test_a_number_of_frames_in_the_settings_is_checked_before_weights_load(folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"model.num_frames is 10; .*such as 21"):
        load(folder, num_frames=10)


def test_a_pipeline_and_an_adapter_are_read_by_diffusers_and_peft(
    folder: Path, policy: Policy, tmp_path: Path
) -> None:
    read_by_others(folder, policy, ask(*TEXTS, **SIZE), load, tmp_path)


def red_video(samples: list[Any]) -> list[float]:
    """Mean of the red channel of all frames."""
    return [float(np.mean(sample.completion.frames[..., 0])) for sample in samples]


@pytest.mark.parametrize("method", ["all", "lora"])
def test_a_run_begins_where_it_samples(folder: Path, tmp_path: Path, method: str) -> None:
    path = tmp_path / "prompts.jsonl"
    path.write_text('{"prompt": "a red cat"}\n{"prompt": "one dog", "num_frames": 9}\n')
    own = [f"model.path={folder}", f"model.max_prompt_length={LENGTH}", "model.num_frames=5"]
    own += ["model.image_size=null", "model.image_height=32", "model.image_width=48"]
    own += [f"{TASK}.task=text_to_video", "save_steps=0", "eval_steps=2", f"{TASK}.diversity=[]"]
    own += [f"{TASK}.eval_prompts={path}", f"{TASK}.rewards=[{{name: '{__file__}:red_video'}}]"]
    out = run(path, tmp_path / "run", *METHODS[method], *own)
    first, second = (line for line in metrics(out) if "ratio" in line)
    assert first["sampling/sampling_logp_difference/mean"] < 1e-6
    assert first["ratio"] == pytest.approx(1, abs=1e-6) and first["kl"] == 0 != second["kl"]
    with Image.open(out / "samples" / "eval_shapes_000002.webp") as grid:
        assert getattr(grid, "n_frames", 1) > 1
    stored = read_samples(out / "samples" / "completions_shapes_000002.parquet")["completion"]
    with Image.open(io.BytesIO(stored.to_pylist()[0]["bytes"])) as clip:
        assert clip.size == (48, 32) and getattr(clip, "n_frames", 1) > 1
    assert (out / "report.html").read_text().count("data:image/webp") > 4


def test_videos_are_evaluated_and_kept_as_they_are(folder: Path, tmp_path: Path) -> None:
    path, out = tmp_path / "prompts.jsonl", tmp_path / "eval"
    path.write_text('{"prompt": "a red cat"}\n{"prompt": "one dog", "num_frames": 9}\n')
    sizes = "image_size: null, image_height: 32, image_width: 48, num_frames: 5"
    words = [f"model={{path: {folder}, max_prompt_length: {LENGTH}, {sizes}}}", f"prompts={path}"]
    words += ["task=text_to_video", "num_images_per_prompt=2", "batch_size=3", f"output_dir={out}"]
    words += ["sampler={name: ode, steps: 2}", "diversity=[]"]
    words += [f"rewards=[{{name: temporal}}, {{name: '{__file__}:red_video'}}]"]
    assert eval_v([*words, "dry_run=true"]) == 0 and eval_v(words) == 0
    found, clips = json.loads((out / "scores.json").read_text()), sorted(out.glob("samples/*.webp"))
    assert found["tables"]["red_video"]["mean over prompts"]["n"] == 4
    videos = [read_clip(Image.open(io.BytesIO(clip.read_bytes()))) for clip in clips]
    assert [len(video) for video in videos] == [5, 5, 9, 9] and (out / "images.webp").is_file()
    kept = red_video([Sample("", video) for video in videos])
    assert [row["red_video"] for row in found["samples"]] == kept
    assert eval_v(words) == 0 and eval_v([*words, "geneval_dir=x"]) == 1
    clips[0].write_bytes(clips[0].read_bytes()[:99])
    assert eval_v(words) == 1


@pytest.mark.parametrize("recompute", [False, True])
def test_the_plan_counts_what_a_block_keeps_for_the_backward(recompute: bool) -> None:
    raw = {**SIZES["Wan2.1-1.3B"], "num_layers": 2, "num_attention_heads": 4, "ffn_dim": 2987}
    network: Any = get_family(raw).network(raw)
    network.gradient_checkpointing = recompute
    latents, states = torch.randn(1, 16, 9, 16, 16), torch.randn(1, TEXT_TOKENS, 4096)
    call = lambda: network(latents=latents, sigma=torch.rand(1), states=states)  # noqa: E731
    kept = count_kept(network, call)
    tokens = network.count_tokens(latents.shape[1:])
    found = network.count_activations(tokens + TEXT_TOKENS, recompute, 4)[0]
    assert found == pytest.approx(kept, rel=0.15)
