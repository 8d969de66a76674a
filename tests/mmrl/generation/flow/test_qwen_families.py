"""Qwen-Image and Z-Image against the installed pipelines, whose text encoders are Qwen's.

The pipelines are skeletons of one block of each kind, with random weights.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import diffusers
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from peft import PeftModel
from torch import Tensor

from mmrl import rl
from mmrl.algorithms import AlgorithmConfig
from mmrl.estimators import draw_passes, score
from mmrl.generation.flow import sampler
from mmrl.generation.flow.canvas import LatentCanvas
from mmrl.models import Policy, load_policy
from mmrl.models.families import get_family
from mmrl.models.loading import load_model
from mmrl.pretrained.known import SIZES
from mmrl.pretrained.model_config import LoraConfig
from mmrl.samplers import SamplerConfig, sample
from mmrl.training.adapter import add_adapter
from mmrl.types import Prompt, Rollout
from scripts.pipeline_skeletons import write_qwen_image, write_z_image
from tests.mmrl.flow_runs import words
from tests.mmrl.test_flow_rl import METHODS, begins_where_it_samples
from tests.models.flow import ask, scatter, seeded
from tests.models.kept_bytes import count_kept

TEXTS = ["a red cat on the sofa", "one dog"]
LENGTH, SIDE = 48, 32
MIXED = [*ask(*TEXTS), *ask("a bird", height=16, width=80), *ask(TEXTS[1], height=64, width=48)]
ROLES = ["q", "k", "v", "o", "gate", "up", "down"]


class Known(NamedTuple):
    """A family: how its pipeline is written, how that is asked, and what its transformer reads."""

    write: Callable[[Path, int, int], None]
    ask: Callable[..., Any]
    names: tuple[str, ...]
    sizes: dict[str, Any]


def pack(latents: Tensor) -> Tensor:
    return F.pixel_unshuffle(latents, 2).flatten(2).transpose(1, 2)


def ask_qwen(pipeline: Any, start: Tensor, w: float, **given: Any) -> Any:
    negative = [" "] * len(TEXTS) if w else None
    return pipeline(TEXTS, negative, true_cfg_scale=1 + w, latents=pack(start), **given).images


def ask_z(pipeline: Any, start: Tensor, w: float, **given: Any) -> Any:
    return pipeline(list(TEXTS), guidance_scale=w, latents=start, **given).images


FAMILIES = {
    "qwen_image": Known(
        write_qwen_image,
        ask_qwen,
        ("hidden_states", "timestep", "encoder_hidden_states", "encoder_hidden_states_mask"),
        {"num_layers": 2, "num_attention_heads": 4, "joint_attention_dim": 256},
    ),
    "z_image": Known(
        write_z_image,
        ask_z,
        ("x", "t", "cap_feats"),
        {"n_layers": 2, "n_refiner_layers": 1, "dim": 512, "n_heads": 4, "n_kv_heads": 4}
        | {"cap_feat_dim": 256},
    ),
}


@pytest.fixture(scope="module", params=FAMILIES)
def family(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def folder(family: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp(family)
    torch.manual_seed(0)
    FAMILIES[family].write(path, 128, 1)
    return path


@pytest.fixture(scope="module")
def policy(folder: Path) -> Policy:
    return load(folder)


def load(folder: Path) -> Policy:
    return load_policy(folder, max_prompt_length=LENGTH, image_size=SIDE)


def public(folder: Path) -> Any:
    kind: Any = diffusers.DiffusionPipeline
    pipeline = kind.from_pretrained(folder)
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


def close(found: Tensor, known: Tensor, tolerance: float = 1e-4) -> None:
    torch.testing.assert_close(found, known, rtol=tolerance, atol=tolerance)


def write(
    policy: Policy, prompts: list[Prompt], seeds: tuple[int, ...], **settings: Any
) -> Rollout:
    config = SamplerConfig(**{"name": "flow", "steps": 4, "cfg_scale": 1.5, **settings})
    return sample(policy, policy.canvas(prompts), config, seeded(seeds))


def note_calls(transformer: Any, names: tuple[str, ...]) -> list[dict[str, Any]]:
    """What a transformer is called with, by name."""
    calls: list[dict[str, Any]] = []

    def note(_: Any, given: tuple[Any, ...], named: dict[str, Any]) -> None:
        calls.append(dict(zip(names, given, strict=False)) | named)

    transformer.register_forward_pre_hook(note, with_kwargs=True)
    return calls


@pytest.mark.parametrize("w", [0.0, 3.0])
def test_latents_and_images_are_those_of_the_pipeline(
    family: str, folder: Path, w: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    known, pipeline, policy = FAMILIES[family], public(folder), load(folder)
    asked, made = (
        note_calls(x, known.names) for x in (pipeline.transformer, policy.network.transformer)
    )
    start = torch.randn(2, 16, SIDE // 8, 6, generator=seeded([3])[0])
    monkeypatch.setattr(sampler, "draw_noise", lambda *_: start.flatten(1))
    given: dict[str, Any] = {"height": SIDE, "width": 48, "num_inference_steps": 4}
    latents = known.ask(pipeline, start, w, output_type="latent", **given)
    drawn = known.ask(pipeline, start, w, **given)
    prompts = ask(*TEXTS, height=SIDE, width=48)
    rollout = write(policy, prompts, (0, 1), name="ode", cfg_scale=w)
    close(rollout.canvas.sigmas[0], pipeline.scheduler.sigmas, 1e-6)
    found = rollout.canvas.finished.unflatten(1, start.shape[1:])
    close(pack(found) if latents.ndim == 3 else found, latents)
    for own, image in zip(policy.decode(rollout.canvas, prompts), drawn, strict=True):
        assert own.size == image.size == (48, SIDE)
        assert abs(np.array(own, dtype=int) - np.array(image, dtype=int)).max() <= 1
    if w:
        return
    for one, two in zip(asked[:4], made, strict=True):
        for name in known.names:
            same_inputs(one[name], two[name])
        assert one.get("img_shapes") == two.get("img_shapes")


def same_inputs(known: Any, found: Any) -> None:
    """Compare; the texts of the project have more zeros behind them."""
    if isinstance(known, list):
        for one, two in zip(known, found, strict=True):
            close(two, one)
    else:
        close(found[:, : known.shape[1]] if known.ndim > 1 else found, known.to(found.dtype))
        assert known.ndim == 1 or not found[:, known.shape[1] :].any()


def test_a_row_of_a_batch_of_mixed_sizes_and_texts_is_the_row_alone(policy: Policy) -> None:
    whole = write(policy, MIXED, (0, 1, 2, 3))
    path, sigmas = whole.canvas.written
    for row, prompt in enumerate(MIXED):
        alone = write(policy, [prompt], (row,))
        number = alone.canvas.path.shape[-1]
        close(path[row, :, :number], alone.canvas.path[0])
        assert torch.equal(sigmas[row], alone.canvas.sigmas[0])
        close(whole.logprobs[row], alone.logprobs[0], 1e-3)
    other = write(policy, ask(TEXTS[1]), (0,)).canvas.path[0]
    assert (other[-1] - path[0, -1, : other.shape[-1]]).abs().max() > 1e-3, "texts are read"


def test_the_replay_of_rows_that_are_joined_and_divided_is_what_was_sampled(
    policy: Policy,
) -> None:
    parts = write(policy, MIXED[:2], (0, 1)), write(policy, MIXED[2:], (2, 3))
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


@pytest.mark.parametrize("method", [pytest.param("all", marks=pytest.mark.slow), "lora"])
def test_a_run_begins_where_it_samples(folder: Path, tmp_path: Path, method: str) -> None:
    lines = Path("datasets/shapes/train.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "prompts.jsonl").write_text("".join(lines[:8:2]))
    own = [f"model.path={folder}", f"model.max_prompt_length={LENGTH}", "save_steps=0"]
    command = words(tmp_path / "prompts.jsonl", tmp_path / "run", *METHODS[method], *own)
    assert rl.main(command) == 0
    begins_where_it_samples(tmp_path / "run")


@torch.no_grad()
def velocity(network: Any, policy: Policy) -> Tensor:
    condition: Any = policy.canvas(ask(*TEXTS)).condition()  # type: ignore[attr-defined]
    start = torch.randn(2, 16, 4, 4, generator=seeded([4])[0])
    return network(latents=start, sigma=torch.tensor([1.0, 0.4]), **condition)


def test_pipelines_and_adapters_are_written_and_read(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = load(folder)
    scatter(policy, 0.02, 1)
    policy.save(tmp_path / "whole", "float32")
    assert torch.equal(
        velocity(load_model(tmp_path / "whole"), policy), velocity(policy.network, policy)
    )
    kept = {n: x for n, x in policy.network.transformer.state_dict().items()}
    written = public(tmp_path / "whole").transformer.state_dict()
    assert all(torch.equal(written[name], x) for name, x in kept.items())
    policy = load(folder)
    lora = LoraConfig(r=2, target_modules=ROLES)
    policy.model = add_adapter(policy.network, lora, 0, str(folder))
    for name, parameter in policy.model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.1, generator=seeded([3])[0])
    policy.save(tmp_path / "adapter")
    known, base = velocity(policy.model, policy), velocity(load_model(folder), policy)
    assert (known - base).abs().max() > 0.01
    close(velocity(load(tmp_path / "adapter").network, policy), known)
    network: Any = load_model(folder)
    network.transformer = PeftModel.from_pretrained(network.transformer, str(tmp_path / "adapter"))
    close(velocity(network, policy), known)


@pytest.mark.parametrize("recompute", [False, True])
def test_the_plan_counts_what_a_pass_keeps(family: str, recompute: bool) -> None:
    name = {"qwen_image": "Qwen-Image", "z_image": "Z-Image"}[family]
    raw = {**SIZES[name], **FAMILIES[family].sizes}
    network = get_family(raw).network(raw)
    network.gradient_checkpointing = recompute
    inputs = {"latents": torch.randn(1, 16, 32, 32), "sigma": torch.rand(1)}
    inputs |= {"states": torch.randn(1, 64, 256)}
    own = {"mask": torch.arange(64)[None] < 40} if family == "qwen_image" else {}
    inputs |= own or {"length": torch.tensor([64])}
    kept = count_kept(network, lambda: network(**inputs))
    if own and recompute:  # blocks that are called by keyword hold what they are given unseen
        kept += 2 * 512 * (256 + 64) * 4
    assert network.count_activations(256 + 64, recompute, 4)[0] == pytest.approx(kept, rel=0.15)
