"""Wan 2.2 against the installed pipeline: the 5B, and A14B with its two experts."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from mmrl.algorithms import AlgorithmConfig
from mmrl.config import ConfigError
from mmrl.estimators import draw_passes, score
from mmrl.models.families import get_family
from mmrl.models.loading import load_model
from mmrl.pretrained.known import SIZES
from mmrl.pretrained.model_config import LoraConfig
from mmrl.runtime.sharding.sharding import find_blocks
from mmrl.training.adapter import add_adapter
from scripts.pipeline_skeletons import write_wan
from tests.models.families.test_latent_families import close
from tests.models.families.test_wan import LENGTH, TEXTS, ask, load, same_as_the_pipeline, write
from tests.models.flow import draw_pipeline, seeded

SIZE = {"height": 32, "width": 64, "num_frames": 9}


@pytest.fixture(scope="module", params=["Wan2.2-5B", "Wan2.2-A14B"])
def name(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def folder(name: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pipeline of random weights, saved by a policy."""
    path = tmp_path_factory.mktemp(name)
    return draw_pipeline(path, partial(write_wan, name=name), 0.05, LENGTH)


def test_latents_and_frames_are_those_of_the_pipeline(name: str, folder: Path) -> None:
    policy, prompts = load(folder), ask(*TEXTS, **SIZE)
    rollout = write(policy, prompts, [0, 1], name="ode", sigma_rule="static_twice")
    videos = same_as_the_pipeline(folder, policy, rollout, 1.5, SIZE, [])
    assert (rollout.canvas.sigmas[0, :-1] < 0.875).any(), "both experts predict"
    assert videos[0].fps == (24 if name == "Wan2.2-5B" else 16)


def test_an_adapter_of_all_experts_is_scored_saved_and_read(folder: Path, tmp_path: Path) -> None:
    network: Any = load_model(folder)
    lora = LoraConfig(r=2, target_modules=["q", "up"])
    adapted = add_adapter(network, lora, 0, str(folder))
    trained = {key: x for key, x in adapted.named_parameters() if x.requires_grad}
    for key, parameter in trained.items():
        if "lora_B" in key:
            torch.nn.init.normal_(parameter, std=0.3, generator=seeded([3])[0])
    policy = replace(load(folder), network=network, model=adapted)
    rollout = write(policy, ask(*TEXTS, **SIZE), [0, 1])
    passes = draw_passes(rollout, AlgorithmConfig(strategy="replay"), seeded([0, 1]))
    found = score(policy, rollout.canvas, passes, 1.5).logprobs
    close(found.sum(0), rollout.logprobs, 1e-3)
    found.sum().backward()
    assert all(each.grad is not None and each.grad.any() for each in trained.values())
    policy.save(tmp_path)
    merged = load(tmp_path)
    again = write(merged, ask(*TEXTS, **SIZE), [0, 1])
    close(again.canvas.path, rollout.canvas.path, 1e-3)


def test_processes_do_not_share_the_weights_of_two_experts() -> None:
    small = {"num_layers": 1, "num_attention_heads": 1, "ffn_dim": 8, "text_dim": 8}
    raw = SIZES["Wan2.2-A14B"]
    raw = {**raw, **small, "transformer_2": {**raw["transformer_2"], **small}}
    with pytest.raises(ConfigError, match="experts predict different rows"):
        find_blocks(get_family(raw).network(raw))
