"""Lumina-Image 2.0 against diffusers' own pipeline, and what every family of latents promises."""

from pathlib import Path
from typing import Any

import diffusers
import pytest
import torch

from mmrl.models import Policy
from mmrl.models.families import get_family
from mmrl.models.loading import load_model
from mmrl.pretrained.known import SIZES
from mmrl.samplers import SamplerConfig, sample
from scripts.pipeline_skeletons import build_gemma
from tests.mmrl.test_flow_rl import METHODS, begins_where_it_samples, run
from tests.models.flow import ask, scatter, seeded
from tests.models.kept_bytes import count_kept
from tests.models.test_sana import (
    STEPS,
    TEXTS,
    close,
    latents,
    load,
    prompts,
    watch,
    write,
)

__all__ = ["prompts"]
LIBRARY: Any = diffusers
RAW = SIZES["Lumina-Image-2.0"]
SIZE = {"height": 32, "width": 48}
LONG = 192
"""Tokens of the system prompt and a text."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny pipeline in which all weights matter."""
    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("lumina_image")
    own = {"hidden_size": 48, "num_layers": 2, "num_refiner_layers": 1, "cap_feat_dim": 64}
    own |= {"num_attention_heads": 2, "num_kv_heads": 1, "axes_dim_rope": (8, 8, 8)}
    sizes = {key: value for key, value in RAW.items() if not isinstance(value, dict)}
    network = LIBRARY.Lumina2Transformer2DModel.from_config({**sizes, **own})
    vae = LIBRARY.AutoencoderKL.from_config(
        {**RAW["vae"], "block_out_channels": [32] * 4, "layers_per_block": 1}
    )
    vae.register_to_config(scaling_factor=0.3611, shift_factor=0.1159)
    scheduler = LIBRARY.FlowMatchEulerDiscreteScheduler.from_config(RAW["scheduler"])
    tokenizer, encoder = build_gemma(RAW["text_encoder"])
    LIBRARY.Lumina2Pipeline(
        transformer=network,
        scheduler=scheduler,
        vae=vae,
        text_encoder=encoder,
        tokenizer=tokenizer,
    ).save_pretrained(path / "drawn")
    policy = load(path / "drawn")
    scatter(policy, 0.05, 1)
    policy.save(path / "moved", "float32")
    return path / "moved"


@pytest.fixture(scope="module")
def policy(folder: Path) -> Policy:
    return load(folder, LONG)


@pytest.mark.parametrize("cfg_scale", [0.0, 3.0])
def test_latents_and_calls_are_those_of_the_pipeline(
    folder: Path, policy: Policy, cfg_scale: float
) -> None:
    public, own, known = LIBRARY.Lumina2Pipeline.from_pretrained(folder), [], []
    public.set_progress_bar_config(disable=True)
    hook = watch(policy.network.transformer, own)
    rollout = write(policy, cfg_scale, **SIZE)
    hook.remove()
    watch(public.transformer, known)
    start = latents(rollout, 0)
    settings = {"guidance_scale": 1 + cfg_scale, "num_inference_steps": STEPS, **SIZE}
    drawn = public(
        list(TEXTS),
        latents=start.clone(),
        output_type="latent",
        max_sequence_length=LONG,
        **settings,
    ).images
    close(latents(rollout, -1), drawn)
    assert (latents(rollout, -1) - start).abs().max() > 0.5
    if not cfg_scale:
        for mine, theirs in zip(own, known, strict=True):
            assert mine.keys() == theirs.keys()
            for key, value in theirs.items():
                close(mine[key], value)


def test_a_row_of_a_batch_of_mixed_sizes_is_the_row_alone(policy: Policy) -> None:
    asked = [*ask(TEXTS[0], **SIZE), *ask("a", height=16, width=32), *ask(TEXTS[1], **SIZE)]
    settings = SamplerConfig(**{"name": "flow", "steps": 3, "cfg_scale": 1.0})
    whole = sample(policy, policy.canvas(asked), settings, seeded([0, 1, 2]))
    for row, prompt in enumerate(asked):
        alone = sample(policy, policy.canvas([prompt]), settings, seeded([row]))
        path = alone.canvas.written[0][0]
        close(whole.canvas.written[0][row, :, : path.shape[-1]], path)


@pytest.mark.parametrize("changes", METHODS.values(), ids=METHODS)
def test_a_run_begins_where_it_samples_and_is_read_again(
    folder: Path, prompts: Path, tmp_path: Path, changes: list[str]
) -> None:
    out = run(
        prompts, tmp_path, *changes, f"model.path={folder}", f"model.max_prompt_length={LONG}"
    )
    begins_where_it_samples(out)
    assert load_model(out / "final").parts is not None


@pytest.mark.parametrize("recompute", [False, True])
def test_the_plan_counts_what_it_keeps_for_the_backward_pass(recompute: bool) -> None:
    raw = {**RAW, "num_layers": 2, "num_refiner_layers": 1}
    network = get_family(raw).network(raw)
    network.gradient_checkpointing = recompute
    inputs = {
        "latents": torch.randn(1, 16, 32, 32),
        "sigma": torch.rand(1),
        "states": torch.randn(1, 256, 2304),
        "mask": torch.ones(1, 256).long(),
    }
    kept = count_kept(network, lambda: network(**inputs))
    assert network.count_activations(512, recompute, 4)[0] == pytest.approx(kept, rel=0.15)
