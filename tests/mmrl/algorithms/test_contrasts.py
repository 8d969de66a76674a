"""Contrasts: worked numbers, public codes on given velocities and through two optimiser steps, and
groups whose gradient is that of their loss.

`tests/fixtures/flow/contrasts.*` has losses and gradients of public codes; each case names the
function and its commit.
"""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor

from mmrl.algorithms import AlgorithmConfig, LossInputs, load_algorithm, policy_loss
from mmrl.algorithms.aggregation import BatchSize
from mmrl.algorithms.contrasts import CONTRASTS, ContrastConfig
from mmrl.config import ConfigError
from mmrl.estimators import score
from mmrl.generation.flow.renoise import MATCHING, Noised
from mmrl.pretrained.model_config import LoraConfig
from mmrl.rl_config import OldPolicyConfig
from mmrl.rollouts.pairing import check_pairing
from mmrl.samplers import SamplerConfig
from mmrl.training.adapter import add_adapter
from mmrl.training.ema import ExponentialAverage
from mmrl.types import Passes, Prediction, Scores
from tests.models.flow import TEXTS, ask, load_sd3

FOLDER = Path(__file__).parents[2] / "fixtures" / "flow"
CASES: dict[str, Any] = json.loads((FOLDER / "contrasts.json").read_text())
NFT = [name for name in CASES if "/nft/" in name]
WEIGHTS = {"Uniform": "uniform", "t": "sigma", "t**2": "sigma2"}
CLEAN = torch.tensor([[0.2, -0.4, 0.1, 0.9]])
TRUE = torch.tensor([[1.0, -0.3, 0.5, -0.8]]) - CLEAN
OLD = TRUE + torch.tensor([0.1, -0.2, 0.05, 0.3])
NEW = OLD + torch.tensor([0.02, 0.01, -0.03, 0.04])
REFERENCE = TRUE + torch.tensor([0.12, -0.18, 0.02, 0.25])
LEVEL = torch.tensor([0.6])


def known() -> dict[str, Tensor]:
    return load_file(FOLDER / "contrasts.safetensors")


def scores(error: Tensor, sigma: Tensor, logprobs: Tensor | None = None) -> Scores:
    """Scores by one pass of errors [B, D]."""
    size = torch.full((len(error),), error.shape[1])
    found = error.new_zeros(1, len(error), 1) if logprobs is None else logprobs
    return Scores(found, prediction=Prediction(error[None], sigma[None], size))


def compute(
    new: Scores, old: Scores | None, reference: Scores | None, advantages: Tensor, **columns: Any
) -> Tensor:
    """The loss of a contrast, or of a ratio where none is named."""
    scored = torch.ones(new.logprobs.shape, dtype=torch.bool)
    number = scored.numel()
    passes = Passes(Noised(new.logprobs, new.logprobs), scored, scored.float())
    method = AlgorithmConfig(strategy="renoise", **{"kl": "velocity", **columns})
    rows = advantages[..., None] if advantages.dim() == 2 else advantages
    given = LossInputs(passes, new, rows, reference=reference, averaged=old)
    size = BatchSize(scored.shape[1], number, number, 1, number, number)
    return policy_loss(given, method, size)[0]


@pytest.mark.parametrize(
    ("beta", "advantage", "kl", "loss"),
    [(1.0, 1.5, 0.0, 0.69208955), (1.0, 1.5, 1e-4, 0.69208976), (0.1, -1.5, 0.0, 6.55506689)],
)
def test_the_worked_example_of_nft(beta: float, advantage: float, kl: float, loss: float) -> None:
    new, old, reference = (scores(v - TRUE, LEVEL) for v in (NEW, OLD, REFERENCE))
    columns = {"contrast": "diffusion_nft", "contrast_beta": beta, "adv_clip_max": 5.0, "beta": kl}
    found = compute(new, old, reference, torch.tensor([advantage]), **columns)
    assert float(found) == pytest.approx(loss, abs=1e-6)


def test_the_worked_example_of_awm() -> None:
    errors = ((v - TRUE).square().mean(1) for v in (NEW, OLD))
    new, old = (-MATCHING["ghuber"](e, LEVEL) for e in errors)
    assert new.item() == pytest.approx(-1.07646176, abs=1e-6)
    assert (new - old).exp().item() == pytest.approx(0.95947039, abs=1e-6)


@pytest.mark.parametrize("name", NFT)
def test_nft_is_that_of_the_public_code(name: str) -> None:
    case, data = CASES[name], known()
    given = {k: data[f"in/f64/nft/{k}"] for k in ("x0", "noise", "t", "v", "v_old", "v_ref", "adv")}
    true, level = (given["noise"] - given["x0"]).flatten(1), given["t"].flatten()
    v = given["v"].flatten(1).requires_grad_()
    new, old, reference = (
        scores(each.flatten(1) - true, level) for each in (v, given["v_old"], given["v_ref"])
    )
    columns = {"contrast_beta": case["beta"], "adv_clip_max": case["adv_clip_max"]}
    loss = compute(
        new, old, reference, given["adv"], contrast="diffusion_nft", beta=case["kl"], **columns
    )
    loss.backward()
    assert loss.item() == pytest.approx(float(data[f"{name}/loss"]), rel=1e-7)
    torch.testing.assert_close(v.grad, data[f"{name}/grad_v"].flatten(1), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("name", [name for name in CASES if "log_prob" in name])
def test_the_log_probs_of_awm_are_those_of_the_public_code(name: str) -> None:
    data, weighting = known(), CASES[name]["weighting"]
    x0, noise, t, v = (data[f"in/awm/{k}"].double() for k in ("x0", "noise", "t", "v"))
    v.requires_grad_()
    error = (v - (noise - x0)).square().flatten(1).mean(1)
    found = -MATCHING[WEIGHTS.get(weighting, weighting)](error, t.flatten())
    torch.testing.assert_close(found, data[f"{name}/log_prob"], rtol=1e-5, atol=1e-7)
    (gradient,) = torch.autograd.grad(found.sum(), v)
    torch.testing.assert_close(gradient, data[f"{name}/grad_v"].double(), rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ([0.0, 0.0, 0.0, 0.0, 0.0], {"uprate": 0.0}),
        ([0.0, 0.01, 0.1, 0.499, 0.5], {}),
        ([0.0, 0.0, 0.1875, 0.999, 0.999], {"flat_steps": 75, "uprate": 0.0075, "uphold": 0.999}),
    ],
)
def test_the_old_policy_follows_by_the_rules_of_nft(kind: list[float], settings: dict) -> None:
    rule = OldPolicyConfig(**settings)
    assert [rule.decay(n) for n in (0, 10, 100, 499, 600)] == pytest.approx(kind)


def group_loss(
    name: str, errors: Tensor, others: Tensor, advantages: Tensor, beta: float
) -> Tensor:
    """The loss of one group as it is written, of errors [G]."""
    above = errors - others
    if name == "dgpo":
        return -F.logsigmoid(-beta * (advantages * above).mean())
    if name == "crd":
        return (-above + above.mean() - advantages).square().mean()
    order = advantages.argsort(descending=True)
    pairs = list(zip(order[: len(order) // 2], order.flip(0), strict=False))
    losses = [-F.logsigmoid(-beta / 2 * (above[w] - above[v])) for w, v in pairs]
    return torch.stack(losses).mean()


@pytest.mark.parametrize("name", ["dgpo", "crd", "flow_dpo"])
def test_slopes_give_the_gradient_of_the_loss_of_a_group(name: str) -> None:
    draw = torch.Generator().manual_seed(0)
    advantages = torch.tensor([0.3, -1.2, 1.4, -0.5, 0.9, 0.2, -0.4, -0.7]).double()
    errors, others = (torch.rand(8, generator=draw).double() for _ in range(2))
    errors.requires_grad_()
    groups = [slice(0, 4), slice(4, 8)]
    losses = [group_loss(name, errors[g], others[g], advantages[g], 3.0) for g in groups]
    (known,) = torch.autograd.grad(sum(losses) / 2, errors)
    over = CONTRASTS[name].group
    assert over is not None
    config = ContrastConfig(contrast_beta=3.0)
    slopes = over.slopes((errors - others)[None, :, None], advantages, 4, config)
    torch.testing.assert_close(slopes.flatten() / 8, known)


def test_rollouts_that_are_as_good_are_no_pair() -> None:
    over = CONTRASTS["flow_dpo"].group
    assert over is not None
    errors = torch.rand(1, 4, 1)
    slopes = over.slopes(errors, torch.tensor([1.0, 0.0, 0.0, -1.0]), 4, ContrastConfig())
    assert slopes[0, [1, 2], 0].tolist() == [0, 0] and slopes[0, [0, 3], 0].ne(0).all()


@pytest.mark.parametrize("name", ["lfpo", "gdsd"])
def test_tokens_become_more_likely_where_the_advantage_is_positive(name: str) -> None:
    method = load_algorithm({"name": name})
    old = torch.tensor([0.3, 0.3, 0.3]).log()[None, :, None]
    new = old.clone().requires_grad_()
    scored = torch.ones(1, 3, 1, dtype=torch.bool)
    passes = Passes(Noised(new, new), scored, scored.float())
    inputs = LossInputs(passes, Scores(new), torch.tensor([1.0, 0.0, -1.0]), averaged=Scores(old))
    policy_loss(inputs, method, BatchSize(3, 3, 3, 1, 3, 3))[0].backward()
    assert new.grad is not None
    better, equal, worse = new.grad.flatten().tolist()
    assert better < 0 < worse and equal == pytest.approx(0, abs=1e-7)


def test_two_optimiser_steps_of_nft_are_those_of_the_public_code() -> None:
    data = {k.removeprefix("steps/"): v for k, v in known().items() if k.startswith("steps/")}
    policy = load_sd3()
    canvas: Any = policy.canvas(ask(*TEXTS, height=64, width=64))
    lora = LoraConfig(r=4, lora_alpha=8, target_modules=["q", "k", "v", "o"])
    policy.model = add_adapter(policy.network, lora, 0, "")
    for name, parameter in policy.network.named_parameters():
        parameter.requires_grad_("lora" in name and ".attn2." not in name)  # as the public list
    adapter = {n: p for n, p in policy.network.named_parameters() if p.requires_grad}

    def own(name: str) -> str:
        return name[name.index("transformer_blocks") :]

    def place(which: str, adapter_name: str) -> dict[str, Tensor]:
        found = {n: own(n).replace("default", adapter_name) for n in adapter}
        return {n: data[f"adapter/{which}/{adapter_name}/{public}"] for n, public in found.items()}

    def fill(values: dict[str, Tensor]) -> None:
        with torch.no_grad():
            for name, value in values.items():
                adapter[name].copy_(value)

    fill(place("start", "old"))
    average = ExponentialAverage(policy.network, 0.0)
    fill(place("start", "default"))
    columns = {"name": "diffusion_nft", "contrast_beta": 0.1, "beta": 0.01}
    method = load_algorithm(columns)
    optimizer = torch.optim.AdamW(adapter.values(), lr=3e-3, weight_decay=1e-4)
    for n in (0, 1):
        x0, levels = data[f"batch{n}/x0"].flatten(1), data[f"batch{n}/timesteps"].T / 1000
        noise = data[f"step{n}/noise"].flatten(2)
        canvas.path, canvas.sigmas = x0[:, None], levels.T
        canvas.stochastic = torch.zeros(2, 1, dtype=torch.bool)
        scored = torch.ones(2, 2, 1, dtype=torch.bool)
        passes = Passes(Noised(levels, noise), scored, scored.float())
        with torch.no_grad(), average.apply():
            old = score(policy, canvas, passes)
        with torch.no_grad(), policy.model.disable_adapter():
            reference = score(policy, canvas, passes)
        advantages = data[f"batch{n}/adv"].T[..., None]
        inputs = LossInputs(
            passes, score(policy, canvas, passes), advantages, reference=reference, averaged=old
        )
        loss, metrics = policy_loss(inputs, method, BatchSize(2, 4, 4, 1, 4, 4))
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(adapter.values(), 1.0)
        case = CASES[f"steps/step{n}"]
        assert loss.item() == pytest.approx(case["loss"], rel=1e-4)
        assert float(metrics["kl"]) == pytest.approx(case["kl_div"], rel=1e-3)
        for name, parameter in adapter.items():
            expected = data.get(f"step{n}/grads/{own(name)}")  # of the first block
            if expected is not None:
                torch.testing.assert_close(parameter.grad, expected, rtol=1e-3, atol=1e-5)
        optimizer.step()
    average.update(0.202)
    for name, value in place("after", "default").items():
        torch.testing.assert_close(adapter[name].detach(), value, rtol=1e-3, atol=2e-4)
    for name, value in place("after", "old").items():
        torch.testing.assert_close(average.average[name], value, rtol=1e-3, atol=2e-4)


@pytest.mark.parametrize(
    ("stated", "words"),
    [
        ({"name": "diffusion_nft", "strategy": "random", "kl": "k3"}, "contrast is diffusion_nft"),
        ({"name": "lfpo", "strategy": "renoise"}, "contrast is lfpo"),
        ({"name": "flow_grpo", "contrast": "dgpo"}, "contrast is dgpo"),
        ({"name": "diffusion_nft", "adv_clip_max": None}, "adv_clip_max is null"),
        ({"name": "diffusion_nft", "kl": "k3"}, "kl is k3"),
        ({"name": "diffusion_nft", "surrogate": "guard"}, "surrogate is guard"),
    ],
)
def test_a_contrast_on_what_it_is_not_defined_for_is_refused(stated: dict, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        load_algorithm(stated)


def test_a_contrast_takes_samplers_without_log_probs_and_a_ratio_does_not() -> None:
    solver = SamplerConfig(name="dpm2")
    check_pairing(load_algorithm({"name": "diffusion_nft"}), solver, "tasks.a")
    with pytest.raises(ConfigError, match="sampler.name is 'dpm2'; it must be cps or dance"):
        check_pairing(load_algorithm({"name": "flow_grpo"}), solver, "tasks.a")
    with pytest.raises(ConfigError, match="as sampler dpm2 writes a flow canvas"):
        check_pairing(load_algorithm({"name": "lfpo"}), solver, "tasks.a")
