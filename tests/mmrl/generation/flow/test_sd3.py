"""SD3 against public codes: texts, rollouts latent for latent, replays, updates with gradients."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from mmrl.algorithms import AlgorithmConfig, LossInputs, policy_loss
from mmrl.algorithms.loss import count_batch
from mmrl.estimators import draw_passes, score
from mmrl.generation.flow import sampler
from mmrl.models import Policy
from mmrl.models.source import ADAPTER_CONFIG
from mmrl.pretrained.model_config import LoraConfig
from mmrl.samplers import SamplerConfig, sample
from mmrl.training.adapter import add_adapter
from mmrl.types import Passes, Rollout, Scores
from tests.models.flow import (
    FOLDER,
    PIPELINE,
    TEXTS,
    ask,
    load_cases,
    load_sd3,
    public_noise,
    scatter,
    seeded,
)

CASES = load_cases()
ALL_STEPS = {"window_range": [0, 5]}
UNIRL = [0, 2, 3]
"""Steps that draw noise in the cases of UniRL."""


@pytest.fixture(scope="module")
def policy() -> Policy:
    return load_sd3()


def close(found: Tensor, known: Tensor, tolerance: float = 5e-4) -> None:
    """Compare; float32 alone moves latents of size 9 by 3e-4, since another machine made these."""
    torch.testing.assert_close(found, known.to(found.dtype), rtol=tolerance, atol=tolerance)


def roll_out(policy: Any, monkeypatch: pytest.MonkeyPatch, seed: int, **settings: Any) -> Rollout:
    """The rollout of both texts with the draws of the public codes."""
    monkeypatch.setattr(sampler, "draw_noise", public_noise(seed, CASES["in/latents/latents0"]))
    canvas = load_sd3().canvas(ask(*TEXTS))
    return sample(policy, canvas, SamplerConfig(**{"steps": 5, **settings}), seeded([0, 1]))


def path_of(rollout: Rollout) -> Tensor:
    return rollout.canvas.path.unflatten(-1, rollout.canvas.shapes[0])


def replay(
    policy: Any, rollout: Rollout, cfg_scale: float, number: int = 5
) -> tuple[Passes, Scores]:
    """The first stochastic steps of a rollout, and what a policy says of them."""
    passes = draw_passes(rollout, AlgorithmConfig(strategy="replay"), seeded([0, 1]))
    passes = passes.select_draws(slice(0, number))
    return passes, score(policy, rollout.canvas, passes, cfg_scale)


def test_texts_become_the_ids_and_encodings_of_the_pipeline(policy: Policy) -> None:
    layout: Any = policy.layouts["text_to_image"]
    encoders = layout.parts.encoders
    for part, name, length in (("clip", "tokenizer", 77), ("clip2", "tokenizer_2", 77)):
        ids = getattr(encoders, name)(TEXTS, padding="max_length", max_length=length).input_ids
        assert ids == CASES[f"in/prompts/{part}_ids"].tolist()
    canvas: Any = policy.canvas(ask(*TEXTS))
    for given, part in ((canvas, "prompts"), (canvas.unconditional()[:1], "negative")):
        condition = given.condition()
        close(condition["states"], CASES[f"in/{part}/embeds"])
        close(condition["pooled"], CASES[f"in/{part}/pooled"])


@pytest.mark.parametrize(("case", "cfg_scale"), [("plain", 0.0), ("cfg", 3.5)])
def test_rollout_and_images_are_those_of_flow_grpo(
    policy: Policy, case: str, cfg_scale: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    rollout = roll_out(policy, monkeypatch, 83, name="flow", cfg_scale=cfg_scale, **ALL_STEPS)
    close(rollout.canvas.sigmas[0], CASES["rollout/plain/sigmas"], 1e-7)
    close(path_of(rollout), CASES[f"rollout/{case}/latents"])
    close(rollout.logprobs, CASES[f"rollout/{case}/log_probs"], 1e-4)
    if case == "plain":
        for image, known in zip(
            policy.decode(rollout.canvas, ask(*TEXTS)), CASES["rollout/plain/images"], strict=True
        ):
            off = np.array(image, dtype=int).transpose(2, 0, 1) - known.int().numpy()
            assert abs(off).max() <= 1


def test_the_deterministic_walk_is_that_of_diffusers(
    policy: Policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    rollout = roll_out(policy, monkeypatch, 83, name="ode", cfg_scale=3.5)
    close(path_of(rollout)[:, -1], CASES["rollout/installed/latents"])
    assert not rollout.logprobs.any() and not rollout.canvas.counted.any()


@pytest.mark.parametrize(("case", "kernel"), [("sde", "flow"), ("cps", "cps")])
def test_a_window_is_that_of_the_fast_form(
    policy: Policy, case: str, kernel: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    window = {"cfg_scale": 3.5, "window_range": [1, 3]}
    rollout = roll_out(policy, monkeypatch, 84, name=kernel, **window)
    assert rollout.canvas.counted.tolist() == [[False, True, True, False, False]] * 2
    close(path_of(rollout)[:, 1:4], CASES[f"rollout/fast_{case}_window2/latents"])
    close(rollout.logprobs[:, 1:3], CASES[f"rollout/fast_{case}_window2/log_probs"], 1e-4)
    assert not rollout.logprobs[:, [0, 3, 4]].any()


@pytest.mark.parametrize(("case", "cfg_scale"), [("plain", 0.0), ("cfg", 3.5)])
def test_replayed_logprobs_and_means_are_those_of_flow_grpo(
    policy: Policy, case: str, cfg_scale: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    rollout = roll_out(policy, monkeypatch, 83, name="flow", cfg_scale=cfg_scale, **ALL_STEPS)
    passes, scores = replay(policy, rollout, cfg_scale)
    assert torch.equal(scores.logprobs.sum(0), rollout.logprobs)
    assert passes.scored.sum(0).all() and passes.scored.sum() == 10
    close(scores.logprobs.sum(0), CASES[f"train/{case}/recomputed/new"], 1e-4)
    if case == "cfg":
        assert scores.gaussian is not None
        close(scores.gaussian.mean.transpose(0, 1), CASES["train/cfg/recomputed/mean"].flatten(2))


def update(
    policy: Any,
    monkeypatch: pytest.MonkeyPatch,
    cfg_scale: float,
    reference: Any = None,
    **columns: Any,
) -> tuple[list[Tensor], dict[str, Tensor], Scores]:
    """The loss of each of the first two steps of a rollout of the first weights, its metrics, and
    the scores; gradients of both losses are added up."""
    sampled = load_sd3()
    settings = {"name": "flow", "cfg_scale": cfg_scale, **ALL_STEPS}
    rollout = roll_out(sampled, monkeypatch, 83, **settings)
    config = AlgorithmConfig(strategy="replay", adv_clip_max=5.0, **columns)
    passes, scores = replay(policy, rollout, cfg_scale, 2)
    known = None if reference is None else reference(rollout)
    losses, found = [], {}
    for step in (0, 1):
        one = slice(step, step + 1)
        part, new = passes.select_draws(one), scores.select_draws(one)
        old = Scores(rollout.logprobs * part.scored)
        inputs = LossInputs(part, new, torch.tensor([1.3, -0.7]), old)
        inputs.reference = None if known is None else known.select_draws(one)
        loss, metrics = policy_loss(inputs, config, count_batch(rollout, part, config))
        losses.append(loss)
        found |= {f"step{step}/{key}": value for key, value in metrics.items()}
    torch.stack(losses).sum().backward()
    return losses, found, scores


@pytest.mark.parametrize(
    ("case", "cfg_scale", "epsilon"), [("plain", 0.0, 1e-4), ("cfg", 3.5, 0.2)]
)
def test_two_steps_of_an_update_of_all_weights(
    case: str, cfg_scale: float, epsilon: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy, where = load_sd3(), f"train/{case}/clip{epsilon:g}".replace("1e-04", "0.0001")
    scatter(policy, 1e-3, 85)
    losses, metrics, scores = update(policy, monkeypatch, cfg_scale, epsilon=epsilon)
    for step, loss in enumerate(losses):
        close(scores.logprobs[step].sum(-1), CASES[f"{where}/step{step}/new"], 1e-5)
        close(metrics[f"step{step}/ratio"], CASES[f"{where}/step{step}/ratio"].mean(), 1e-5)
        close(loss, CASES[f"{where}/step{step}/loss"], 1e-5)
    same_gradients(policy.network.transformer, where)


def same_gradients(module: torch.nn.Module, where: str, cut: str = "") -> None:
    """Compare with the known gradients, each by its own size."""
    parameters = dict(module.named_parameters())
    known = {k.partition("grad.")[2]: v for k, v in CASES.items() if k.startswith(f"{where}/grads")}
    for name, gradient in known.items():
        found = parameters[name.removeprefix(cut)].grad
        assert found is not None, name
        assert (found - gradient).norm() <= 1e-3 * gradient.norm() + 1e-7, name


def test_two_steps_of_an_update_of_an_adapter_with_kl(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = json.loads((FOLDER / "lora" / ADAPTER_CONFIG).read_text())
    weights = FOLDER / "lora" / "adapter_model.safetensors"
    (tmp_path / weights.name).write_bytes(weights.read_bytes())
    written = {**config, "base_model_name_or_path": str(PIPELINE)}
    (tmp_path / ADAPTER_CONFIG).write_text(json.dumps(written))
    policy = load_sd3(tmp_path, merge_adapter=False)
    lora = LoraConfig(r=4, lora_alpha=8, target_modules=["q", "k", "v", "o"])
    adapted: Any = add_adapter(policy.network, lora, 0, str(tmp_path))

    def reference(rollout: Rollout) -> Scores:
        with torch.no_grad(), adapted.disable_adapter():
            return replay(policy, rollout, 3.5, 2)[1]

    columns = {"epsilon": 1e-3, "beta": 0.04, "kl": "gaussian_rate"}
    losses, metrics, scores = update(policy, monkeypatch, 3.5, reference, **columns)
    for step, loss in enumerate(losses):
        where = f"train/lora/step{step}"
        close(scores.logprobs[step].sum(-1), CASES[f"{where}/new"], 1e-5)
        close(metrics[f"step{step}/policy_loss"], CASES[f"{where}/policy"], 1e-5)
        assert metrics[f"step{step}/kl"] == pytest.approx(CASES[f"{where}/kl"].item(), rel=1e-3)
        close(loss, CASES[f"{where}/loss"], 1e-5)
    same_gradients(policy.network.transformer, "train/lora", "base_model.model.")


@pytest.mark.parametrize("case", ["flow_fp16", "cps_fp32", "dance_fp32"])
def test_rollout_and_replay_are_those_of_unirl(
    policy: Policy, case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel, _, stored = case.partition("_")
    where, drawn = f"unirl/{case}_g4.5", torch.zeros(2, 5, dtype=torch.bool)
    drawn[:, UNIRL] = True
    monkeypatch.setattr(sampler, "choose_stochastic", lambda config, place: drawn)
    kind = {"fp16": torch.float16, "fp32": torch.float32}[stored]
    keeping = SimpleNamespace(
        dtype=kind, count_tokens=policy.network.count_tokens, guide=policy.network.guide
    )
    tolerance = {"fp16": 1e-2, "fp32": 5e-4}[stored]
    storing = replace(policy, network=keeping)
    settings = {"name": kernel, "cfg_scale": 3.5, "sigma_rule": "static", "noise_level": 0.7}
    rollout = roll_out(storing, monkeypatch, 87, **settings)
    assert rollout.canvas.path.dtype == kind
    close(rollout.canvas.sigmas[0], CASES[f"{where}/sigmas"], 1e-7)
    close(path_of(rollout), CASES[f"{where}/latents"], tolerance)
    close(rollout.logprobs[:, UNIRL], CASES[f"{where}/sde_logp"], 1e-3)
    _, scores = replay(storing, rollout, 3.5)
    assert torch.equal(scores.logprobs.sum(0), rollout.logprobs)
    close(scores.logprobs.sum(0)[:, UNIRL], CASES[f"{where}/replay_logp"], 1e-3)
    if f"{where}/replay_means" in CASES:
        assert scores.gaussian is not None
        means = scores.gaussian.mean.transpose(0, 1)
        known = CASES[f"{where}/replay_means"].flatten(2)
        close(means.to(kind), known, tolerance)
