"""FLUX.1 and FLUX.2-klein against the pipelines of diffusers and a rollout of flow_grpo.

`tests/fixtures/flow_flux` has the transformer of a tiny FLUX.1-dev, whose weights bfloat16 holds as
they are, and what diffusers 0.42.0 and zhtmike/flow_grpo@9745241 compute with it in float32. The
pipelines are those of `scripts/pipeline_skeletons.py`, and all their weights matter.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import diffusers
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from peft import PeftModel
from safetensors.torch import load_file
from torch import Tensor

from mmrl.algorithms import AlgorithmConfig
from mmrl.estimators import draw_passes, score
from mmrl.generation.flow import sampler
from mmrl.models import Policy, load_policy
from mmrl.models.families import get_family
from mmrl.models.loading import load_model
from mmrl.models.network.flux import FluxNetwork
from mmrl.pretrained.known import SIZES
from mmrl.pretrained.model_config import LoraConfig
from mmrl.samplers import SamplerConfig, sample
from mmrl.training.adapter import add_adapter
from mmrl.types import Rollout
from scripts.pipeline_skeletons import write_flux, write_flux2_klein
from tests.mmrl.test_flow_rl import METHODS, begins_where_it_samples, run
from tests.models.flow import ask, scatter, seeded
from tests.models.kept_bytes import count_kept
from tests.models.networks import FIXTURES

LIBRARY: Any = diffusers
LENGTH, STEPS = 24, 4
TEXTS = ("a red cat", "the dog, asleep under the table")
SIZE = {"height": 64, "width": 96}
WRITERS = {"flux": write_flux, "flux2_klein": write_flux2_klein}
CASES = load_file(FIXTURES / "flow_flux" / "cases.safetensors")


@pytest.fixture(scope="module", params=WRITERS)
def folder(request: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pipeline of random weights."""
    torch.manual_seed(0)
    path = tmp_path_factory.mktemp(request.param)
    WRITERS[request.param](path / "drawn", width=128, layers=1)
    policy = load(path / "drawn")
    scatter(policy, 0.1, 1)
    policy.save(path / "moved", "float32")
    return path / "moved"


@pytest.fixture(scope="module")
def policy(folder: Path) -> Policy:
    return load(folder)


def load(path: Path, **options: Any) -> Policy:
    return load_policy(path, max_prompt_length=LENGTH, **options)


def close(found: Tensor, known: Tensor, tolerance: float = 1e-4) -> None:
    torch.testing.assert_close(found, known.to(found.dtype), rtol=tolerance, atol=tolerance)


def write(policy: Policy, prompts: list[Any], seeds: tuple[int, ...], **settings: Any) -> Rollout:
    config = SamplerConfig(**{"name": "ode", "steps": STEPS, **settings})
    return sample(policy, policy.canvas(prompts), config, seeded(seeds))


def state(rollout: Rollout, step: int) -> Tensor:
    """[B, C, h, w] before a step."""
    return rollout.canvas.written[0][:, step].unflatten(1, rollout.canvas.shapes[0])


def pack(latents: Tensor) -> Tensor:
    """[B, L, 4 C]: the tokens of FLUX.1."""
    return F.pixel_unshuffle(latents, 2).flatten(2).mT


def unpack(tokens: Tensor) -> Tensor:
    """[…, D] of 4 x 6 tokens, as they are in a canvas."""
    flat = tokens.flatten(0, -3).mT.unflatten(2, (4, 6))
    return F.pixel_shuffle(flat, 2).flatten(1).unflatten(0, tokens.shape[:-2])


def watch(transformer: Any, calls: list[dict[str, Any]]) -> Any:
    """Note what a transformer is called with."""

    def note(_: Any, __: Any, named: dict[str, Any]) -> None:
        left_out = ("joint_attention_kwargs", "return_dict")
        calls.append({key: value for key, value in named.items() if key not in left_out})

    return transformer.register_forward_pre_hook(note, with_kwargs=True)


def draw_publicly(folder: Path, start: Tensor, cfg_scale: float) -> tuple[Any, Any, list[Any]]:
    """The images of the pipeline from given noise, the tokens after each step, and the calls of its
    transformer."""
    public, steps, calls = LIBRARY.DiffusionPipeline.from_pretrained(folder), [], []
    public.set_progress_bar_config(disable=True)
    watch(public.transformer, calls)

    def note(_: Any, __: int, ___: Any, values: dict[str, Any]) -> dict[str, Any]:
        steps.append(values["latents"])
        return values

    own: dict[str, Any] = {"guidance_scale": 1 + cfg_scale, "latents": start}
    if isinstance(public, LIBRARY.FluxPipeline):
        own = {"true_cfg_scale": 1 + cfg_scale, "negative_prompt": ["", ""], "latents": pack(start)}
    usual = {"num_inference_steps": STEPS, "max_sequence_length": LENGTH, **SIZE}
    return (
        public(prompt=list(TEXTS), callback_on_step_end=note, **own, **usual).images,
        steps,
        calls,
    )


@pytest.mark.parametrize("cfg_scale", [0.0, 2.5])
def test_latents_images_and_calls_are_those_of_the_pipeline(
    folder: Path, policy: Policy, cfg_scale: float
) -> None:
    prompts, own = ask(*TEXTS, **SIZE), []
    hook = watch(policy.network.transformer, own)
    rollout = write(policy, prompts, (0, 1), cfg_scale=cfg_scale)
    hook.remove()
    drawn, steps, known = draw_publicly(folder, state(rollout, 0), cfg_scale)
    assert (state(rollout, -1) - state(rollout, 0)).abs().max() > 0.5
    for n, tokens in enumerate(steps):
        found = state(rollout, n + 1)
        close(pack(found) if policy.network.patch == 2 else found.flatten(2).mT, tokens)
    images: Any = policy.decode(rollout.canvas, prompts)
    for one, two in zip(images, drawn, strict=True):
        assert one.size == (96, 64)
        assert abs(np.array(one, dtype=int) - np.array(two, dtype=int)).max() <= 1
    branches = 2 if cfg_scale else 1
    assert len(own) * branches == len(known) == STEPS * branches
    for n, given in enumerate(known):
        ours = own[n // branches]
        assert ours.keys() == given.keys()
        for key, value in given.items():
            if isinstance(value, Tensor):
                part = ours[key] if "ids" in key else ours[key].chunk(branches)[n % branches]
                # klein's pipeline has the same ids for each row
                close(part.float(), (value[0] if value.ndim > part.ndim else value).float())
            else:
                assert ours[key] is value


def test_the_rollout_and_replay_of_flux_are_those_of_diffusers_and_flow_grpo(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = FluxNetwork(json.loads((FIXTURES / "flow_flux" / "config.json").read_text()))
    weights = load_file(FIXTURES / "flow_flux" / "transformer.safetensors")
    network.transformer.load_state_dict({key: each.float() for key, each in weights.items()})
    write_flux(tmp_path, width=128, layers=1)
    policy = replace(load(tmp_path), network=network, model=network)
    canvas: Any = policy.canvas(ask(*TEXTS, **SIZE))
    canvas.shapes, canvas.text = [(4, 8, 12)] * 2, torch.arange(2)
    names = {"states": "in/prompts/embeds", "pooled": "in/prompts/pooled"}
    canvas.texts = {key: CASES[name] for key, name in names.items()}
    start, noises = unpack(CASES["euler/latents"])[0], unpack(CASES["flow_grpo/noises"])

    def draw(seeds: Any, purpose: str | int, *_: Any) -> Tensor:
        return start if isinstance(purpose, str) else noises[purpose]

    monkeypatch.setattr(sampler, "draw_noise", draw)
    calls: list[dict[str, Any]] = []
    watch(network.transformer, calls)
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


def test_a_row_of_a_batch_of_mixed_sizes_is_the_row_alone(policy: Policy) -> None:
    prompts = [*ask("a red square", **SIZE), *ask("a long text", height=32, width=48), *ask("x")]
    prompts[2].metadata.update(height=96, width=64)
    settings = {"name": "flow", "cfg_scale": 1.0}
    whole = write(policy, prompts, (0, 1, 2), **settings)
    path, sigmas = whole.canvas.written
    for row, prompt in enumerate(prompts):
        alone = write(policy, [prompt], (row,), **settings)
        number = alone.canvas.path.shape[-1]
        close(path[row, :, :number], alone.canvas.path[0])
        assert torch.equal(sigmas[row], alone.canvas.sigmas[0])
        close(whole.logprobs[row], alone.logprobs[0], 1e-3)


def test_images_are_encoded_to_what_is_decoded(folder: Path, policy: Policy) -> None:
    network: Any = policy.network
    parts = network.parts
    pixels = torch.rand(2, 3, 64, 96) * 2 - 1
    found = parts.encode_images(pixels, network.from_encoder)
    canvas: Any = policy.canvas(ask(*TEXTS, **SIZE))
    assert found.shape == (2, *canvas.shapes[0])
    public: Any = LIBRARY.DiffusionPipeline.from_pretrained(folder)
    known = public.vae.encode(pixels).latent_dist.mode()
    close(network.to_decoder(found, parts.decoder.vae), known)
    if hasattr(public, "_patchify_latents"):
        known = public._patchify_latents(known)
        mean, variance = public.vae.bn.running_mean, public.vae.bn.running_var
        known = (known - mean[:, None, None]) / (variance + 1e-4).sqrt()[:, None, None]
        close(found, known)


def test_a_pipeline_and_an_adapter_are_read_by_diffusers_and_peft(
    folder: Path, tmp_path: Path
) -> None:
    policy, prompts = load(folder), ask(*TEXTS, **SIZE)
    names = sorted(policy.network.layer_roles)
    adapted = add_adapter(policy.network, LoraConfig(r=2, target_modules=names), 0, str(folder))
    policy = replace(policy, model=adapted)
    for name, parameter in adapted.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.3, generator=seeded([3])[0])
    policy.save(tmp_path / "adapter")
    known = state(write(policy, prompts, (0, 1)), -1)
    assert (known - state(write(load(folder), prompts, (0, 1)), -1)).abs().max() > 0.1
    merged = load(tmp_path / "adapter")
    close(state(write(merged, prompts, (0, 1)), -1), known)
    network: Any = load_model(folder)
    network.transformer = PeftModel.from_pretrained(network.transformer, tmp_path / "adapter")
    read = replace(merged, network=network, model=network)
    close(state(write(read, prompts, (0, 1)), -1), known)
    merged.save(tmp_path / "whole", "float32")
    files = {path.relative_to(folder) for path in folder.rglob("*") if path.is_file()}
    assert {p.relative_to(tmp_path / "whole") for p in (tmp_path / "whole").rglob("*.*")} == files
    public: Any = LIBRARY.DiffusionPipeline.from_pretrained(tmp_path / "whole")
    for name, tensor in merged.network.transformer.state_dict().items():
        assert torch.equal(public.transformer.state_dict()[name], tensor)


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_a_run_begins_where_it_samples(folder: Path, tmp_path: Path, method: str) -> None:
    prompts = tmp_path / "prompts.jsonl"
    lines = Path("datasets/shapes/train.jsonl").read_text().splitlines(keepends=True)
    prompts.write_text("".join(lines[:2]))
    more = (f"model.path={folder}", f"model.max_prompt_length={LENGTH}", "save_steps=0")
    begins_where_it_samples(run(prompts, tmp_path / "run", *more, *METHODS[method]))


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("name", ["FLUX.1-dev", "FLUX.2-klein-9B"])
def test_the_plan_counts_what_a_block_keeps_for_the_backward_pass(
    name: str, recompute: bool
) -> None:
    sizes = {"num_layers": 1, "num_single_layers": 2, "num_attention_heads": 3}
    raw = {**SIZES[name], **sizes, "joint_attention_dim": 64}
    network: Any = get_family(raw).network(raw)
    network.gradient_checkpointing = recompute
    shapes = {**network.shapes, "states": (16, 64)}
    channels, *_ = shapes["latents"]
    shapes["latents"] = (channels, 16 * network.patch, 16 * network.patch)
    inputs = {key: torch.randn(1, *shape) for key, shape in shapes.items()}
    held = 0

    def hold(_: Any, __: Any, named: dict[str, Any]) -> None:
        nonlocal held  # a block that is computed again keeps its input where no hook sees it
        held += recompute * (256 + 16) * 384 * 4

    for block in network.blocks:
        block.register_forward_pre_hook(hold, with_kwargs=True)
    kept = count_kept(network, lambda: network(sigma=torch.rand(1), **inputs)) + held
    assert network.count_activations(256 + 16, recompute, 4)[0] == pytest.approx(kept, rel=0.15)
