"""What each family of pipelines that denoise latents promises, against the installed pipeline.

The pipelines are those of `scripts/pipeline_skeletons.py`, and all their weights matter.
"""

import gc
import json
import weakref
from collections.abc import Callable
from dataclasses import replace
from inspect import signature
from pathlib import Path
from typing import Any, cast

import diffusers
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from peft import PeftModel
from PIL import Image
from torch import Tensor
from transformers import Qwen2_5_VLModel

from mmrl.algorithms import AlgorithmConfig
from mmrl.estimators import draw_passes, score
from mmrl.generation.flow.canvas import LatentCanvas
from mmrl.models import Policy, load_policy
from mmrl.models.families import get_family
from mmrl.models.loading import load_model
from mmrl.objectives.flow import Flow
from mmrl.objectives.options import FlowConfig
from mmrl.pretrained.known import SIZES
from mmrl.pretrained.model_config import LoraConfig
from mmrl.samplers import SamplerConfig, sample
from mmrl.sft import SFTConfig, train
from mmrl.training.adapter import add_adapter
from mmrl.types import Prompt, Rollout
from scripts.pipeline_skeletons import PIPELINES
from tests.mmrl.runs import metrics
from tests.mmrl.test_flow_rl import METHODS, begins_where_it_samples, run
from tests.models.flow import ask, draw_pipeline, seeded
from tests.models.kept_bytes import count_kept
from tests.pictures import write_images

LIBRARY: Any = diffusers
STEPS = 4
TEXTS = ("a red cat on the sofa", "one dog")
SIZE = {"height": 64, "width": 96}
MIXED = [*ask(*TEXTS, **SIZE), *ask("a bird", height=32, width=64), *ask("x", height=96, width=64)]
LEFT_OUT = ("attention_kwargs", "joint_attention_kwargs", "return_dict")


def pack(latents: Tensor, patch: int = 2) -> Tensor:
    """[B, L, D]: the tokens of a packed latent."""
    return F.pixel_unshuffle(latents, patch).flatten(2).mT


def ask_plainly(_: Any, start: Tensor, w: float) -> dict[str, Any]:
    return {"guidance_scale": 1 + w, "latents": start, "num_inference_steps": STEPS}


def ask_packed(_: Any, start: Tensor, w: float) -> dict[str, Any]:
    negative = {"true_cfg_scale": 1 + w, "negative_prompt": [" "] * len(start)} if w else {}
    return {**negative, "latents": pack(start), "num_inference_steps": STEPS}


def ask_z_image(_: Any, start: Tensor, w: float) -> dict[str, Any]:
    return {"guidance_scale": w, "latents": start, "num_inference_steps": STEPS}


def ask_sana(pipeline: Any, start: Tensor, w: float) -> dict[str, Any]:
    """Ask for Euler steps of the shift of its solver."""
    shift = pipeline.scheduler.config.flow_shift
    pipeline.scheduler = LIBRARY.FlowMatchEulerDiscreteScheduler(shift=shift)
    sigmas = {"sigmas": [1 - n / STEPS for n in range(STEPS)], "use_resolution_binning": False}
    return {"guidance_scale": 1 + w, "latents": start, **sigmas}


FAMILIES: dict[str, tuple[Callable[[Any, Tensor, float], dict[str, Any]], float]] = (
    {"flux": (ask_packed, 0.1), "flux2_klein": (ask_plainly, 0.1)}
    | {"lumina_image": (ask_plainly, 0.05), "qwen_image": (ask_packed, 0.05)}
    | {"z_image": (ask_z_image, 0.05), "sana": (ask_sana, 0.1), "sd3": (ask_plainly, 0.05)}
)
"""How the pipeline of a family is asked, and what its weights are moved by."""
FLUX = {"num_layers": 1, "num_single_layers": 2, "num_attention_heads": 3}
FLUX["joint_attention_dim"] = 64
QWEN = {"num_layers": 2, "num_attention_heads": 4, "joint_attention_dim": 256}
Z_IMAGE = {"n_layers": 2, "n_refiner_layers": 1, "dim": 512, "n_heads": 4, "n_kv_heads": 4}
Z_IMAGE["cap_feat_dim"] = 256
PUBLISHED = (
    {"FLUX.1-dev": (FLUX, 16), "FLUX.2-klein-9B": (FLUX, 16), "Qwen-Image": (QWEN, 64)}
    | {"Lumina-Image-2.0": ({"num_layers": 2, "num_refiner_layers": 1}, 256)}
    | {"Z-Image": (Z_IMAGE, 64), "Sana-0.6B-512px": ({"num_layers": 2}, 256)}
)
"""Sizes of published transformers that are made smaller, and the positions of a text."""


@pytest.fixture(scope="module", params=FAMILIES)
def family(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def folder(family: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pipeline of random weights."""
    path = tmp_path_factory.mktemp(family)
    return draw_pipeline(path, PIPELINES[family], FAMILIES[family][1], length_of(path))


@pytest.fixture(scope="module")
def policy(folder: Path) -> Policy:
    return load(folder)


def load(path: Path) -> Policy:
    return load_policy(path, max_prompt_length=length_of(path))


def length_of(path: Path) -> int:
    """Tokens of a text; the system prompt of Lumina-Image has 190."""
    return 224 if "lumina_image" in str(path) else 48


def starting(folder: Path) -> list[str]:
    """The words of a run that begins with a pipeline."""
    return [f"model.path={folder}", f"model.max_prompt_length={length_of(folder)}"]


def public(folder: Path) -> Any:
    parts = json.loads((folder / "model_index.json").read_text())
    absent = {name: None for name, kind in parts.items() if kind == [None, None]}
    pipeline = LIBRARY.DiffusionPipeline.from_pretrained(folder, **absent)
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


def close(found: Tensor, known: Tensor, tolerance: float = 1e-4) -> None:
    torch.testing.assert_close(found, known.to(found.dtype), rtol=tolerance, atol=tolerance)


def write(policy: Policy, prompts: list[Prompt], seeds: list[int], **settings: Any) -> Rollout:
    config = SamplerConfig(**{"name": "flow", "steps": STEPS, "cfg_scale": 1.5, **settings})
    return sample(policy, policy.canvas(prompts), config, seeded(seeds))


def state(rollout: Rollout, step: int) -> Tensor:
    """[B, C, h, w] before a step."""
    return rollout.canvas.written[0][:, step].unflatten(1, rollout.canvas.shapes[0])


def watch(transformer: Any, calls: list[dict[str, Any]]) -> Any:
    """Note what a transformer is called with, by name."""
    names = signature(transformer.forward)

    def note(_: Any, given: tuple[Any, ...], named: dict[str, Any]) -> None:
        found = names.bind(*given, **named).arguments
        calls.append({key: x for key, x in found.items() if key not in LEFT_OUT})

    return transformer.register_forward_pre_hook(note, with_kwargs=True)


def divide(given: Any, branch: int) -> Any:
    """What the first or second branch is given of what both are."""
    if isinstance(given, list):
        return given[branch * len(TEXTS) :][: len(TEXTS)]
    return given.chunk(2)[branch] if isinstance(given, Tensor) else given


def same_inputs(known: Any, found: Any) -> None:
    """Compare; a text of the project may have more zeros behind it, and its ids have no rows."""
    if isinstance(known, Tensor):
        known = known[0] if known.ndim > found.ndim else known
        if known.ndim > 1:
            assert not found[:, known.shape[1] :].any()
            found = found[:, : known.shape[1]]
        close(found.float(), known.float())
    elif isinstance(known, list) and isinstance(known[0], Tensor):
        for one, two in zip(known, found, strict=True):
            close(two, one)
    else:
        assert found == known


@pytest.mark.parametrize("w", [0.0, 2.5])
def test_latents_images_and_calls_are_those_of_the_pipeline(
    family: str, folder: Path, policy: Policy, w: float
) -> None:
    own, known, steps, prompts = [], [], [], ask(*TEXTS, **SIZE)
    hook = watch(policy.network.transformer, own)
    rollout = write(policy, prompts, [0, 1], name="ode", cfg_scale=w)
    hook.remove()

    def note(_: Any, __: int, ___: Any, values: dict[str, Any]) -> dict[str, Any]:
        steps.append(values["latents"].clone())
        return values

    pipeline = public(folder)
    watch(pipeline.transformer, known)
    given = FAMILIES[family][0](pipeline, state(rollout, 0).clone(), w)
    given |= {"max_sequence_length": length_of(folder), "callback_on_step_end": note, **SIZE}
    drawn = pipeline(prompt=[*TEXTS], **given).images
    close(rollout.canvas.sigmas[0], pipeline.scheduler.sigmas, 1e-6)
    assert (state(rollout, -1) - state(rollout, 0)).abs().max() > 0.5
    assert len(steps) == len(own) == STEPS
    for n, latents in enumerate(steps):
        found = state(rollout, n + 1)
        close(pack(found, policy.network.patch) if latents.ndim == 3 else found, latents)
    images: Any = policy.decode(rollout.canvas, prompts)
    for one, two in zip(images, drawn, strict=True):
        assert one.size == two.size == (96, 64)
        assert abs(np.array(one, dtype=int) - np.array(two, dtype=int)).max() <= 1
    branches = 2 if w else 1
    if len(known) == STEPS < STEPS * branches:  # of both branches; the empty text is often first
        order = (0, 1) if family == "z_image" else (1, 0)
        known = [{k: divide(x, n) for k, x in call.items()} for call in known for n in order]
    assert len(known) == STEPS * branches
    for n, call in enumerate(known):
        for key, value in call.items():
            ours = own[n // branches].get(key)
            ours = divide(ours, n % branches) if w and "ids" not in key else ours
            if "mask" in key and value is None:  # which is that of a text without padding
                value = torch.ones(call["encoder_hidden_states"].shape[:2])
            same_inputs(value, ours)


def test_a_row_of_a_batch_of_mixed_sizes_and_texts_is_the_row_alone(policy: Policy) -> None:
    whole = write(policy, MIXED, [0, 1, 2, 3])
    path, sigmas = whole.canvas.written
    for row, prompt in enumerate(MIXED):
        alone = write(policy, [prompt], [row])
        number = alone.canvas.path.shape[-1]
        close(path[row, :, :number], alone.canvas.path[0])
        assert torch.equal(sigmas[row], alone.canvas.sigmas[0])
        close(whole.logprobs[row], alone.logprobs[0], 1e-3)
    other = write(policy, ask(TEXTS[1], **SIZE), [0]).canvas.path[0]
    assert (other[-1] - path[0, -1, : other.shape[-1]]).abs().max() > 1e-3, "texts are read"


def test_the_replay_of_rows_that_are_joined_and_divided_is_what_was_sampled(policy: Policy) -> None:
    parts = write(policy, MIXED[:2], [0, 1]), write(policy, MIXED[2:], [2, 3])
    canvas = LatentCanvas.join([each.canvas for each in parts])
    logprobs = torch.cat([each.logprobs for each in parts])
    rollout = Rollout(
        canvas, canvas.counted.long(), logprobs, parts[0].settings, torch.arange(4), 4
    )
    passes = draw_passes(rollout, AlgorithmConfig(strategy="replay"), seeded([0, 1, 2, 3]))
    close(score(policy, canvas, passes, 1.5).logprobs.sum(0), logprobs, 1e-3)
    order = torch.tensor([3, 0, 2])
    some = score(policy, canvas[order], passes[order], 1.5).logprobs.sum(0)
    close(some, logprobs[order], 1e-3)


def test_images_are_encoded_to_what_is_decoded(folder: Path, policy: Policy) -> None:
    network: Any = policy.network
    pixels = torch.rand(2, 3, 64, 96, generator=seeded([5])[0]) * 2 - 1
    found = network.parts.encode_images(pixels, network.from_encoder)
    canvas: Any = policy.canvas(ask(*TEXTS, **SIZE))
    assert found.shape == (2, *canvas.shapes[0])
    vae = public(folder).vae
    video = isinstance(vae, LIBRARY.AutoencoderKLQwenImage)
    with torch.no_grad():
        known = vae.encode(pixels[:, :, None] if video else pixels)
    means = known.latent if "latent" in known else known.latent_dist.mode()
    close(network.to_decoder(found, network.parts.decoder.vae), means.flatten(1, -3))


@torch.no_grad()
def velocity(network: Any, canvas: Any) -> Tensor:
    start = torch.randn(2, *canvas.shapes[0], generator=seeded([4])[0])
    return network(latents=start, sigma=torch.tensor([1.0, 0.4]), **canvas.condition())


def test_a_pipeline_and_an_adapter_are_read_by_diffusers_and_peft(
    folder: Path, policy: Policy, tmp_path: Path
) -> None:
    read_by_others(folder, policy, ask(*TEXTS, **SIZE), load, tmp_path)


def read_by_others(
    folder: Path, policy: Policy, prompts: list[Prompt], load: Callable, tmp_path: Path
) -> None:
    """Save an adapter of a pipeline in `folder`, and a pipeline with it in its weights; both must
    give their velocities where peft, diffusers and the project read them."""
    network, canvas = cast("Any", load_model(folder)), policy.canvas(prompts)
    names = sorted(network.layer_roles)
    adapted = add_adapter(network, LoraConfig(r=2, target_modules=names), 0, str(folder))
    for name, parameter in adapted.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.3, generator=seeded([3])[0])
    replace(policy, network=network, model=adapted).save(tmp_path / "adapter")
    known = velocity(adapted, canvas)
    assert (known - velocity(policy.network, canvas)).abs().max() > 0.1
    merged = load(tmp_path / "adapter")
    close(velocity(merged.network, canvas), known, 3e-4)
    plain: Any = load_model(folder)
    plain.transformer = PeftModel.from_pretrained(plain.transformer, str(tmp_path / "adapter"))
    close(velocity(plain, canvas), known, 3e-4)
    whole = tmp_path / "whole"
    merged.save(whole, "float32")
    files = {path.relative_to(folder) for path in folder.rglob("*") if path.is_file()}
    assert {path.relative_to(whole) for path in whole.rglob("*") if path.is_file()} == files
    assert torch.equal(velocity(load_model(whole), canvas), velocity(merged.network, canvas))
    read = public(whole).transformer.state_dict()
    for name, tensor in merged.network.transformer.state_dict().items():
        assert torch.equal(read[name], tensor)


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    lines = Path("datasets/shapes/train.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "prompts.jsonl").write_text("".join(lines[:2]))
    return tmp_path / "prompts.jsonl"


@pytest.mark.parametrize("method", [pytest.param("all", marks=pytest.mark.slow), "lora"])
def test_a_run_begins_where_it_samples(
    family: str, folder: Path, prompts: Path, tmp_path: Path, method: str
) -> None:
    side = 64 if family == "sana" else 32
    own = [*METHODS[method], *starting(folder), f"model.image_size={side}"]
    out = run(prompts, tmp_path / "run", *own, "save_steps=0")
    begins_where_it_samples(out)


@pytest.mark.parametrize("family", ["qwen_image"], indirect=True)
def test_a_text_encoder_encodes_each_text_once_and_leaves_before_the_first_rollout(
    folder: Path, prompts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls, held, there = [], weakref.WeakSet(), set()
    encode, denoise = Qwen2_5_VLModel.forward, LIBRARY.QwenImageTransformer2DModel.forward

    def encoded(self: Any, *arguments: Any, **named: Any) -> Any:
        calls.append(1)
        held.add(self)
        return encode(self, *arguments, **named)

    def denoised(self: Any, *arguments: Any, **named: Any) -> Any:
        if not there:
            gc.collect()
        there.add((len(held), len(calls)))
        return denoise(self, *arguments, **named)

    monkeypatch.setattr(Qwen2_5_VLModel, "forward", encoded)
    monkeypatch.setattr(LIBRARY.QwenImageTransformer2DModel, "forward", denoised)
    own = [*starting(folder), "max_steps=1"]
    own += ["model.unload_text_encoders=true", f"model.encodings_dir={tmp_path / 'store'}"]
    run(prompts, tmp_path / "run", *METHODS["lora"], *own)
    assert there == {(0, 3)}, "two prompts and the empty text"


@pytest.mark.slow
@pytest.mark.parametrize(
    "lora", [None, {"r": 4, "target_modules": ["q", "v"]}], ids=["all", "lora"]
)
def test_what_two_supervised_steps_learn_is_saved_and_loaded_again(
    folder: Path, tmp_path: Path, lora: dict[str, Any] | None
) -> None:
    images = [Image.new("RGB", (64, 64), color) for color in ("red", "blue")]
    pairs = str(write_images(tmp_path / "pairs.parquet", images, [*TEXTS]))
    start: dict[str, Any] = {"data": pairs, "eval_data": pairs, "save_dtype": "float32"}
    start |= {"model": str(folder), "image_size": 64, "max_prompt_length": length_of(folder)}
    values: dict[str, Any] = {"max_steps": 2, "eval_steps": 2, "bf16": False}
    values |= {"per_device_train_batch_size": 2, "learning_rate": 5e-3 if lora else 1e-3}
    objective = {"name": "flow", "lora": lora, **start}
    out = train(SFTConfig(output_dir=str(tmp_path / "run"), objective=objective, **values))
    [trained] = [line["eval/loss"] for line in metrics(out) if "eval/loss" in line]
    given = ({}, {"model": str(out / "final")})
    flows = (Flow(FlowConfig(**{**start, **each}), seed=0, batch_size=2) for each in given)
    before, after = (flow.evaluate(tmp_path, 0)["eval/loss"] for flow in flows)
    assert (out / "final" / "adapter_config.json").is_file() == bool(lora)
    assert after == pytest.approx(trained, rel=1e-6) and abs(after / before - 1) > 1e-3


@pytest.mark.parametrize("family", ["sd3"], indirect=True)
def test_an_adapter_learns_on_a_base_of_4_bits(folder: Path, prompts: Path, tmp_path: Path) -> None:
    pytest.importorskip("bitsandbytes")
    own = [*starting(folder), "model.dtype=float32", "model.quantization_config={}"]
    given = [*METHODS["lora"], *own, "save_steps=0"]
    first, second = metrics(run(prompts, tmp_path / "run", *given))
    assert first["ratio"] == pytest.approx(1, abs=1e-4) and first["kl"] == 0 != second["kl"]


@pytest.mark.parametrize("name", PUBLISHED)
@pytest.mark.parametrize("recompute", [False, True])
def test_the_plan_counts_what_a_block_keeps_for_the_backward(name: str, recompute: bool) -> None:
    sizes, text = PUBLISHED[name]
    raw = {**SIZES[name], **sizes}
    network: Any = get_family(raw).network(raw)
    network.gradient_checkpointing = recompute
    channels, *_ = network.shapes["latents"]
    shapes = {**network.shapes, "latents": (channels, 16 * network.patch, 16 * network.patch)}
    shapes["states"] = (text, network.shapes["states"][1])
    inputs = {key: torch.randn(1, *shape) for key, shape in shapes.items()}
    if "mask" in inputs:
        inputs["mask"] = torch.ones(1, text)
    if "length" in inputs:
        inputs["length"] = torch.tensor([text])
    held = 0

    def hold(_: Any, __: Any, named: dict[str, Any]) -> None:
        nonlocal held  # a block that is computed again keeps what it is given by keyword unseen
        given = named.get("hidden_states"), named.get("encoder_hidden_states")
        held += recompute * sum(x.nbytes for x in given if x is not None)

    for block in network.blocks:
        block.register_forward_pre_hook(hold, with_kwargs=True)
    kept = count_kept(network, lambda: network(sigma=torch.rand(1), **inputs)) + held
    found = network.count_activations(256 + text, recompute, 4)[0]
    assert found == pytest.approx(kept, rel=0.15)
