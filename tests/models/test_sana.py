"""Sana against diffusers' own pipeline, and what every family of latents promises."""

from pathlib import Path
from typing import Any

import diffusers
import numpy as np
import pytest
import torch
from peft import PeftModel
from torch import Tensor

from mmrl.models import Policy, load_policy
from mmrl.models.families import get_family
from mmrl.models.loading import load_model
from mmrl.pretrained.known import SIZES
from mmrl.pretrained.model_config import LoraConfig
from mmrl.samplers import SamplerConfig, sample
from mmrl.training.adapter import add_adapter
from mmrl.types import Rollout
from scripts.pipeline_skeletons import write_sana
from tests.mmrl.test_flow_rl import METHODS, begins_where_it_samples, run
from tests.models.flow import ask, scatter, seeded
from tests.models.kept_bytes import count_kept

LIBRARY: Any = diffusers
LENGTH, STEPS = 24, 4
TEXTS = ("A red cat on the table", "the dog, asleep under a tree")
SIZE = {"height": 64, "width": 96}
ROLES = ["q", "k", "v", "o"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny pipeline in which all weights matter."""
    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("sana")
    write_sana(path / "drawn", width=64, layers=2)
    policy = load(path / "drawn")
    scatter(policy, 0.1, 1)
    policy.save(path / "moved", "float32")
    return path / "moved"


@pytest.fixture(scope="module")
def policy(folder: Path) -> Policy:
    return load(folder)


@pytest.fixture(scope="module")
def prompts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two prompts."""
    path = tmp_path_factory.mktemp("prompts") / "prompts.jsonl"
    lines = Path("datasets/shapes/train.jsonl").read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:2]))
    return path


def load(path: Path, length: int = LENGTH) -> Policy:
    return load_policy(path, max_prompt_length=length)


def close(found: Tensor, known: Tensor) -> None:
    torch.testing.assert_close(found, known.to(found.dtype), rtol=1e-4, atol=1e-4)


def write(policy: Policy, cfg_scale: float, **size: int) -> Rollout:
    settings = SamplerConfig(**{"name": "ode", "steps": STEPS, "cfg_scale": cfg_scale})
    return sample(policy, policy.canvas(ask(*TEXTS, **size)), settings, seeded([0, 1]))


def latents(rollout: Rollout, step: int) -> Tensor:
    return rollout.canvas.written[0][:, step].unflatten(1, rollout.canvas.shapes[0])


def open_public(folder: Path) -> Any:
    """The pipeline with Euler steps of the shift of its solver."""
    public = LIBRARY.SanaPipeline.from_pretrained(folder)
    public.set_progress_bar_config(disable=True)
    shift = public.scheduler.config.flow_shift
    public.scheduler = LIBRARY.FlowMatchEulerDiscreteScheduler(shift=shift)
    return public


def watch(transformer: Any, calls: list[dict[str, Any]]) -> Any:
    """Note the tensors that a transformer is called with."""

    def note(_: Any, given: tuple[Tensor, ...], named: dict[str, Any]) -> None:
        tensors = {key: x for key, x in named.items() if isinstance(x, Tensor)}
        calls.append(tensors | ({"hidden_states": given[0]} if given else {}))

    return transformer.register_forward_pre_hook(note, with_kwargs=True)


@pytest.mark.parametrize("cfg_scale", [0.0, 3.5])
def test_latents_images_and_calls_are_those_of_the_pipeline(
    folder: Path, policy: Policy, cfg_scale: float
) -> None:
    public, own, known = open_public(folder), [], []
    hook = watch(policy.network.transformer, own)
    rollout = write(policy, cfg_scale, **SIZE)
    hook.remove()
    watch(public.transformer, known)
    start = latents(rollout, 0)
    more = {"max_sequence_length": LENGTH, "use_resolution_binning": False, **SIZE}
    sigmas = [1 - n / STEPS for n in range(STEPS)]
    settings = {"guidance_scale": 1 + cfg_scale, "sigmas": sigmas, **more}
    drawn = public(list(TEXTS), latents=start.clone(), output_type="latent", **settings).images
    close(latents(rollout, -1), drawn)
    assert rollout.canvas.written[1][0].tolist() == pytest.approx([1, 0.9, 0.75, 0.5, 0])
    assert (latents(rollout, -1) - start).abs().max() > 0.5
    with torch.no_grad():
        pixels = public.vae.decode(drawn / public.vae.config.scaling_factor).sample
    images: Any = policy.decode(rollout.canvas, ask(*TEXTS, **SIZE))
    for one, two in zip(images, public.image_processor.postprocess(pixels), strict=True):
        assert one.size == (96, 64)
        assert abs(np.array(one, dtype=int) - np.array(two, dtype=int)).max() <= 1
    if not cfg_scale:
        assert len(own) == len(known) == STEPS
        for mine, theirs in zip(own, known, strict=True):
            assert mine.keys() == theirs.keys()
            for key, value in theirs.items():
                close(mine[key], value)


def test_texts_are_encoded_behind_the_instruction_and_the_empty_one_alone(
    folder: Path, policy: Policy
) -> None:
    public, more = open_public(folder), {"max_sequence_length": LENGTH}
    layout: Any = policy.layouts["text_to_image"]
    encode, encoders = layout.encode_text, layout.parts.encoders
    found = encode(encoders, ["", TEXTS[0]], torch.device("cpu"))
    states, mask, *_ = public.encode_prompt("", False, **more)
    close(found["states"][:1], states)
    assert torch.equal(found["mask"][:1], mask) and mask.sum() == 1, "the begin"
    plain = public.encode_prompt(TEXTS[0], False, **more)[0]
    assert (found["states"][1, : LENGTH // 2] - plain[0, : LENGTH // 2]).abs().max() > 0.1
    assert found["states"].shape == (2, LENGTH, 64)


def test_a_row_of_a_batch_of_mixed_sizes_is_the_row_alone(policy: Policy) -> None:
    prompts = [*ask(TEXTS[0], **SIZE), *ask("a", height=32, width=64), *ask(TEXTS[1], **SIZE)]
    settings = SamplerConfig(**{"name": "flow", "steps": 3, "cfg_scale": 1.0})
    whole = sample(policy, policy.canvas(prompts), settings, seeded([0, 1, 2]))
    for row, prompt in enumerate(prompts):
        alone = sample(policy, policy.canvas([prompt]), settings, seeded([row]))
        path = alone.canvas.written[0][0]
        close(whole.canvas.written[0][row, :, : path.shape[-1]], path)


@pytest.mark.parametrize("changes", METHODS.values(), ids=METHODS)
def test_a_run_begins_where_it_samples(
    folder: Path, prompts: Path, tmp_path: Path, changes: list[str]
) -> None:
    small = (f"model.path={folder}", f"model.max_prompt_length={LENGTH}", "model.image_size=64")
    begins_where_it_samples(run(prompts, tmp_path, *changes, *small))


@torch.no_grad()
def velocity(network: Any) -> Tensor:
    source = seeded([7])[0]
    given = {"latents": (2, 32, 2, 3), "states": (2, LENGTH, 64)}
    inputs = {key: torch.randn(shape, generator=source) for key, shape in given.items()}
    mask = (torch.arange(LENGTH) < torch.tensor([[5], [LENGTH]])).long()
    sigma = torch.tensor([1.0, 0.4])
    if hasattr(network, "public_config") or hasattr(network, "base_model"):
        return network(**inputs, sigma=sigma, mask=mask)
    return network(inputs["latents"], inputs["states"], sigma * 1000, None, mask).sample


def test_a_pipeline_and_an_adapter_are_read_by_diffusers_and_peft(
    folder: Path, tmp_path: Path
) -> None:
    policy = load(folder)
    policy.model = add_adapter(
        policy.network, LoraConfig(r=2, target_modules=ROLES), 0, str(folder)
    )
    for name, parameter in policy.model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.3, generator=seeded([3])[0])
    known = velocity(policy.model)
    assert (known - velocity(load_model(folder))).abs().max() > 0.1
    policy.save(tmp_path / "adapter")
    base = LIBRARY.SanaTransformer2DModel.from_pretrained(folder / "transformer")
    adapted = PeftModel.from_pretrained(base, str(tmp_path / "adapter"))
    close(velocity(adapted.base_model.model), known)
    merged = load(tmp_path / "adapter")
    close(velocity(merged.network), known)
    merged.save(tmp_path / "whole", "float32")
    close(velocity(LIBRARY.SanaPipeline.from_pretrained(tmp_path / "whole").transformer), known)


def test_pixels_become_what_the_autoencoder_is_given(policy: Policy) -> None:
    layout: Any = policy.layouts["text_to_image"]
    pixels, vae = torch.rand(2, 3, 64, 96) * 2 - 1, layout.parts.decoder.vae
    found = layout.parts.encode_images(pixels, policy.network.from_encoder)
    with torch.no_grad():
        close(found, vae.encode(pixels).latent * vae.config.scaling_factor)
        close(policy.network.to_decoder(found, vae), vae.encode(pixels).latent)


@pytest.mark.parametrize("recompute", [False, True])
def test_the_plan_counts_what_sana_keeps_for_the_backward_pass(recompute: bool) -> None:
    raw = {**SIZES["Sana-0.6B-512px"], "num_layers": 2}
    network = get_family(raw).network(raw)
    network.gradient_checkpointing = recompute
    inputs = {
        "latents": torch.randn(1, 32, 16, 16),
        "sigma": torch.rand(1),
        "states": torch.randn(1, 256, 2304),
        "mask": torch.ones(1, 256),
    }
    kept = count_kept(network, lambda: network(**inputs))
    assert network.count_activations(512, recompute, 4)[0] == pytest.approx(kept, rel=0.15)
