"""A constant that is added to the exact velocity of numbers of N(1, 1/4) learns to draw twos."""

from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from torch import Tensor, nn

from mmrl.algorithms import AlgorithmConfig, LossInputs, policy_loss
from mmrl.algorithms.contrasts import CONTRASTS
from mmrl.algorithms.loss import count_batch
from mmrl.estimators import draw_passes, score
from mmrl.generation.flow.canvas import LatentCanvas
from mmrl.generation.flow.kind import FLOW
from mmrl.generation.flow.schedules import RULES
from mmrl.randomness import generator
from mmrl.samplers import SamplerConfig, sample
from mmrl.types import Rollout, Scores
from tests.models.flow import seeded

ROWS, UPDATES, GROUP = 32, 20, 8
METHODS: dict[str, tuple[float, dict[str, Any], dict[str, Any]]] = {
    "flow": (0.1, {"noise_level": 0.7}, {"epsilon": 0.2}),
    "dance": (0.1, {"noise_level": 0.7}, {"epsilon": 0.2}),
    "cps": (0.4, {"noise_level": 0.8}, {"epsilon": 0.2}),
    "guard": (0.1, {"noise_level": 0.7}, {"surrogate": "guard", "epsilon": 0.2}),
    "flow_dppo": (0.1, {"noise_level": 0.7}, {"surrogate": "flow_dppo", "epsilon": 1e-5}),
    "awm": (0.1, {"name": "ode"}, {"epsilon": 1.0, "matching": "sigma2"}),
    "diffusion_nft": (0.1, {"name": "dpm2"}, {"contrast": "diffusion_nft", "adv_clip_max": 5.0}),
    "dgpo": (0.1, {"name": "ode"}, {"contrast": "dgpo"}),
    "flow_dpo": (0.1, {"name": "ode"}, {"contrast": "flow_dpo"}),
    "crd": (0.1, {"name": "ode"}, {"contrast": "crd"}),
}
THROUGH: dict[str, dict[str, Any]] = {
    "refl": {"exit_range": 0.4},
    "draft": {"grad_steps": 2, "chained": True},
    "draft_lv": {"num_draws": 2},
    "drtune": {"grad_steps": 2, "spread": True, "exit_range": 0.4},
}
METHODS |= {
    name: (0.1, {"name": "ode"}, {"strategy": "last_steps", **options})
    for name, options in THROUGH.items()
}
"""Learning rate, sampler and columns of a method."""


class Line(nn.Module):
    """The velocity of N(1, 1/4), with a constant."""

    def __init__(self) -> None:
        super().__init__()
        self.constant = nn.Parameter(torch.zeros(()))

    def forward(self, latents: Tensor, sigma: Tensor, nothing: Tensor) -> Tensor:
        sigma = sigma[:, None]
        slope = (sigma - (1 - sigma) / 4) / ((1 - sigma).square() / 4 + sigma.square())
        return slope * (latents - (1 - sigma)) - 1 + self.constant


def learn(method: str, shuffled: bool) -> list[float]:
    """The mean reward of the rollouts before each update."""
    rate, settings, columns = METHODS[method]
    model, rewards = Line(), []
    network: Any = SimpleNamespace(
        dtype=torch.float32,
        count_tokens=lambda shape: 1,
        guide=lambda branches, guidance: branches[0],
    )
    policy: Any = SimpleNamespace(model=model, network=network, shares_forwards=False, version=0)
    optimizer = torch.optim.SGD(model.parameters(), rate)
    name, strategy = settings.get("name", method), "renoise" if "name" in settings else "replay"
    name = name if name in FLOW.samplers else "flow"
    config = AlgorithmConfig(**{"strategy": strategy, **columns})
    sampler = SamplerConfig(**{"steps": 5, **settings, "name": name})
    for step in range(UPDATES):
        rollout = sample(policy, start(), sampler, generator(step, "draws"))
        reward = reward_of(rollout.canvas.path[:, -1, 0])
        rewards.append(float(reward.mean()))
        advantages = (reward - reward.mean()) / reward.std()
        if shuffled:
            advantages = advantages[torch.randperm(ROWS, generator=generator(step, "shuffled"))]
        update(policy, optimizer, rollout, advantages, config)
    return rewards


def reward_of(latents: Tensor) -> Tensor:
    return -(latents - 2).square()


def start() -> LatentCanvas:
    rows = torch.zeros(ROWS, dtype=torch.long)
    texts = {"nothing": torch.zeros(1, 1)}
    return LatentCanvas([(1,)] * ROWS, texts, rows, rows, RULES["linear"])


def update(
    policy: Any, optimizer: Any, rollout: Rollout, advantages: Tensor, config: AlgorithmConfig
) -> None:
    """Two optimiser steps on the same rollouts; the reference is the velocity as it was."""
    passes = draw_passes(rollout, config, seeded(range(ROWS)))
    size, old = count_batch(rollout, passes, config), None
    first = SimpleNamespace(**{**vars(policy), "model": Line()})
    with torch.no_grad():
        reference: Scores = score(cast("Any", first), rollout.canvas, passes)
    group = CONTRASTS[config.contrast].group
    for _ in range(2):
        new = score(policy, rollout.canvas, passes)
        old = old or new.detach()
        inputs = LossInputs(passes, new, advantages, old, reference, averaged=old)
        if new.finished is not None:
            inputs.rewards = reward_of(new.finished[..., 0])
        if group is not None:
            other = old if config.contrast == "crd" else reference
            found = group.measure(new.detach()) - group.measure(other)
            inputs.slopes = group.slopes(found, advantages, GROUP, config)
        loss, _ = policy_loss(inputs, config, size)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@pytest.mark.parametrize("method", [name for name in METHODS if name not in THROUGH])
def test_the_reward_rises_and_with_shuffled_advantages_it_does_not(method: str) -> None:
    learned, control = learn(method, False), learn(method, True)
    gains = [sum(each[-4:]) / 4 - each[0] for each in (learned, control)]
    assert learned[0] == control[0] and gains[0] > 0.4
    assert abs(gains[1]) < gains[0] / 3


@pytest.mark.parametrize("method", THROUGH)
def test_the_reward_rises_by_its_own_gradient_whatever_the_advantages(method: str) -> None:
    learned, shuffled = learn(method, False), learn(method, True)
    assert sum(learned[-4:]) / 4 - learned[0] > 0.4
    assert learned == shuffled
