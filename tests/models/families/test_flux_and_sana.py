"""What is special to FLUX.1, FLUX.2-klein, Qwen-Image and Sana.

`tests/fixtures/flow_flux` has the transformer of a tiny FLUX.1-dev, whose weights bfloat16 holds as
they are, and what diffusers 0.42.0 and zhtmike/flow_grpo@9745241 compute with it in float32;
`flow_qwen_image` has the same of a Qwen-Image, with guidance.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import diffusers
import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor

from mmrl.algorithms import AlgorithmConfig
from mmrl.estimators import draw_passes, score
from mmrl.generation.flow import sampler
from mmrl.models import load_policy
from mmrl.models.families.flux import FluxNetwork
from mmrl.models.families.qwen_image import QwenImageNetwork
from mmrl.models.loading import load_model
from mmrl.samplers import SamplerConfig, sample
from scripts.pipeline_skeletons import write_flux, write_flux2_klein, write_qwen_image, write_sana
from tests.models.families.test_latent_families import close, watch
from tests.models.flow import ask, seeded
from tests.models.networks import FIXTURES

LIBRARY: Any = diffusers
TEXTS = ("a red cat", "the dog, asleep under the table")
CASES = load_file(FIXTURES / "flow_flux" / "cases.safetensors")


def read_policy(folder: Path, fixture: str, made: Any, write: Any) -> Any:
    """A policy with the transformer of a fixture."""
    network = made(json.loads((FIXTURES / fixture / "config.json").read_text()))
    weights = load_file(FIXTURES / fixture / "transformer.safetensors")
    network.transformer.load_state_dict({key: each.float() for key, each in weights.items()})
    write(folder, width=128, layers=1)
    policy = load_policy(folder, max_prompt_length=24)
    return replace(policy, network=network, model=network)


def unpack(tokens: Tensor) -> Tensor:
    """[…, D] of 4 x 6 tokens, as they are in a canvas."""
    flat = tokens.flatten(0, -3).mT.unflatten(2, (4, 6))
    return F.pixel_shuffle(flat, 2).flatten(1).unflatten(0, tokens.shape[:-2])


def test_the_rollout_and_replay_of_flux_are_those_of_diffusers_and_flow_grpo(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = read_policy(tmp_path, "flow_flux", FluxNetwork, write_flux)
    canvas: Any = policy.canvas(ask(*TEXTS, height=64, width=96))
    canvas.shapes, canvas.text = [(4, 8, 12)] * 2, torch.arange(2)
    names = {"states": "in/prompts/embeds", "pooled": "in/prompts/pooled"}
    canvas.texts = {key: CASES[name] for key, name in names.items()}
    start, noises = unpack(CASES["euler/latents"])[0], unpack(CASES["flow_grpo/noises"])

    def draw(seeds: Any, purpose: str | int, *_: Any) -> Tensor:
        return start if isinstance(purpose, str) else noises[purpose]

    monkeypatch.setattr(sampler, "draw_noise", draw)
    calls: list[dict[str, Any]] = []
    watch(policy.network.transformer, calls)
    for name, case in (("ode", "euler"), ("flow", "flow_grpo")):
        window = {} if name == "ode" else {"window_range": [0, 5]}
        config = SamplerConfig(**{"name": name, "steps": 5, **window})
        rollout = sample(policy, canvas, config, seeded([0, 1]))
        path, sigmas = rollout.canvas.written
        close(path.transpose(0, 1), unpack(CASES[f"{case}/latents"]))
        close(sigmas[0], CASES["euler/sigmas"], 1e-6)
    for n, known in enumerate(CASES["euler/calls"]):
        close(calls[n]["timestep"], known, 1e-6)
    for key in ("guidance", "img_ids"):
        close(calls[0][key].float(), CASES[f"euler/{key}"], 0)
    close(calls[0]["txt_ids"], CASES["in/prompts/txt_ids"], 0)
    close(rollout.logprobs.T, CASES["flow_grpo/log_probs"])
    passes = draw_passes(rollout, AlgorithmConfig(strategy="replay"), seeded([0, 1]))
    found = score(policy, rollout.canvas, passes).logprobs.sum(0)
    assert torch.equal(found, rollout.logprobs)
    close(found.T, CASES["train/new"])


def test_the_guided_rollout_and_replay_of_qwen_image_are_those_of_diffusers_and_flow_grpo(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cases = load_file(FIXTURES / "flow_qwen_image" / "cases.safetensors")
    policy = read_policy(tmp_path, "flow_qwen_image", QwenImageNetwork, write_qwen_image)
    canvas: Any = policy.canvas(ask(*TEXTS, height=64, width=96))
    canvas.shapes, canvas.text = [(4, 8, 12)] * 2, torch.arange(2)
    canvas.empty = torch.arange(2, 4)
    shorter = cases["in/prompts/embeds"].shape[1] - cases["in/prompts/negative"].shape[1]
    negative = F.pad(cases["in/prompts/negative"], (0, 0, 0, shorter))
    masks = [cases["in/prompts/mask"], F.pad(cases["in/prompts/negative_mask"], (0, shorter))]
    canvas.texts = {"states": torch.cat([cases["in/prompts/embeds"], negative])}
    canvas.texts["mask"] = torch.cat(masks).bool()
    euler, noises = unpack(cases["euler/latents"]), unpack(cases["flow_grpo/noises"])

    def draw(seeds: Any, purpose: str | int, *_: Any) -> Tensor:
        return euler[0] if isinstance(purpose, str) else noises[purpose - 1]

    monkeypatch.setattr(sampler, "draw_noise", draw)
    paths = []
    for name, window in (("ode", {}), ("flow", {"window_size": 2, "window_range": [1, 3]})):
        config = SamplerConfig(**{"name": name, "steps": 5, "cfg_scale": 3.0, **window})
        rollout = sample(policy, canvas, config, seeded([0, 1]))
        paths.append(rollout.canvas.written[0].transpose(0, 1))
        close(rollout.canvas.written[1][0], cases["euler/sigmas"], 1e-6)
    close(paths[0], euler)
    close(paths[1][1:4], unpack(cases["flow_grpo/latents"]))
    assert rollout.canvas.counted.tolist() == [[False, True, True, False, False]] * 2
    close(rollout.logprobs[:, 1:3].T, cases["flow_grpo/log_probs"])
    passes = draw_passes(rollout, AlgorithmConfig(strategy="replay"), seeded([0, 1]))
    assert torch.equal(score(policy, rollout.canvas, passes, 3.0).logprobs.sum(0), rollout.logprobs)


def test_latents_of_klein_are_normalised_by_its_autoencoders_batch_norm(tmp_path: Path) -> None:
    write_flux2_klein(tmp_path, width=128, layers=1)
    network: Any = load_model(tmp_path)
    pixels = torch.rand(2, 3, 64, 96) * 2 - 1
    public = LIBRARY.DiffusionPipeline.from_pretrained(tmp_path)
    known = public._patchify_latents(public.vae.encode(pixels).latent_dist.mode())
    mean, variance = public.vae.bn.running_mean, public.vae.bn.running_var
    known = (known - mean[:, None, None]) / (variance + 1e-4).sqrt()[:, None, None]
    close(network.parts.encode_images(pixels, network.from_encoder), known)


SANA_LENGTH, SANA_TEXT = 24, "A red cat on the table"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sana")
    write_sana(path, width=64, layers=1)
    return path


@pytest.fixture(scope="module")
def policy(folder: Path) -> Any:
    return load_policy(folder, max_prompt_length=SANA_LENGTH)


def test_the_schedule_has_the_shift_of_the_solver(policy: Any) -> None:
    settings = SamplerConfig(**{"name": "ode", "steps": 4})
    rollout = sample(
        policy, policy.canvas(ask(SANA_TEXT, height=64, width=96)), settings, seeded([0])
    )
    assert rollout.canvas.written[1][0].tolist() == pytest.approx([1, 0.9, 0.75, 0.5, 0])


def test_texts_are_encoded_behind_the_instruction_and_the_empty_one_alone(
    folder: Path, policy: Any
) -> None:
    layout, public = policy.layouts["text_to_image"], LIBRARY.SanaPipeline.from_pretrained(folder)
    found = layout.encode_text(layout.parts.encoders, ["", SANA_TEXT], torch.device("cpu"))
    states, mask, *_ = public.encode_prompt("", False, max_sequence_length=SANA_LENGTH)
    close(found["states"][:1], states)
    assert torch.equal(found["mask"][:1], mask) and mask.sum() == 1, "the begin"
    plain = public.encode_prompt(SANA_TEXT, False, max_sequence_length=SANA_LENGTH)[0]
    assert (found["states"][1, : SANA_LENGTH // 2] - plain[0, : SANA_LENGTH // 2]).abs().max() > 0.1
    assert found["states"].shape == (2, SANA_LENGTH, 64)


def test_pixels_become_what_the_autoencoder_is_given(policy: Any) -> None:
    parts = policy.layouts["text_to_image"].parts
    pixels, vae = torch.rand(2, 3, 64, 96) * 2 - 1, parts.decoder.vae
    found = parts.encode_images(pixels, policy.network.from_encoder)
    with torch.no_grad():
        close(found, vae.encode(pixels).latent * vae.config.scaling_factor)
