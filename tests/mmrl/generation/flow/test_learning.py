"""A constant that is added to the exact velocity of numbers of N(1, 1/4) learns to draw twos."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from mmrl.algorithms import AlgorithmConfig, LossInputs, policy_loss
from mmrl.algorithms.loss import count_batch
from mmrl.estimators import draw_passes, score
from mmrl.generation.flow.canvas import LatentCanvas
from mmrl.generation.flow.schedules import RULES
from mmrl.randomness import generator
from mmrl.samplers import SamplerConfig, sample
from mmrl.types import Rollout
from tests.models.flow import seeded

ROWS, UPDATES = 32, 20
METHODS: dict[str, tuple[float, dict[str, Any], dict[str, Any]]] = {
    "flow": (0.1, {"noise_level": 0.7}, {"epsilon": 0.2}),
    "dance": (0.1, {"noise_level": 0.7}, {"epsilon": 0.2}),
    "cps": (0.4, {"noise_level": 0.8}, {"epsilon": 0.2}),
    "guard": (0.1, {"noise_level": 0.7}, {"surrogate": "guard", "epsilon": 0.2}),
    "flow_dppo": (0.1, {"noise_level": 0.7}, {"surrogate": "flow_dppo", "epsilon": 1e-5}),
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
    policy: Any = SimpleNamespace(model=model, network=network, shares_forwards=False)
    optimizer = torch.optim.SGD(model.parameters(), rate)
    config = AlgorithmConfig(strategy="replay", **columns)
    name = method if method in ("flow", "dance", "cps") else "flow"
    sampler = SamplerConfig(**{"name": name, "steps": 5, **settings})
    for step in range(UPDATES):
        rollout = sample(policy, start(), sampler, generator(step, "draws"))
        reward = -(rollout.canvas.path[:, -1, 0] - 2).square()
        rewards.append(float(reward.mean()))
        advantages = (reward - reward.mean()) / reward.std()
        if shuffled:
            advantages = advantages[torch.randperm(ROWS, generator=generator(step, "shuffled"))]
        update(policy, optimizer, rollout, advantages, config)
    return rewards


def start() -> LatentCanvas:
    rows = torch.zeros(ROWS, dtype=torch.long)
    texts = {"nothing": torch.zeros(1, 1)}
    return LatentCanvas([(1,)] * ROWS, texts, rows, rows, RULES["linear"])


def update(
    policy: Any, optimizer: Any, rollout: Rollout, advantages: Tensor, config: AlgorithmConfig
) -> None:
    """Two optimiser steps on the same rollouts."""
    passes = draw_passes(rollout, config, seeded(range(ROWS)))
    size, old = count_batch(rollout, passes, config), None
    for _ in range(2):
        new = score(policy, rollout.canvas, passes)
        old = old or new.detach()
        loss, _ = policy_loss(LossInputs(passes, new, advantages, old), config, size)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@pytest.mark.parametrize("method", METHODS)
def test_the_reward_rises_and_with_shuffled_advantages_it_does_not(method: str) -> None:
    learned, control = learn(method, False), learn(method, True)
    gains = [sum(each[-4:]) / 4 - each[0] for each in (learned, control)]
    assert learned[0] == control[0] and gains[0] > 0.4
    assert abs(gains[1]) < gains[0] / 3
