"""One optimiser step by hand, as the tutorial does it: sample, score, advantages, loss, step."""

from pathlib import Path

import pytest
import torch

from mmrl.algorithms import LossInputs, count_batch, group_advantages, load_algorithm, policy_loss
from mmrl.estimators import draw_passes, score
from mmrl.models import load_policy
from mmrl.randomness import generator
from mmrl.rewards import build_reward
from mmrl.samplers import SamplerConfig, sample
from mmrl.types import Prompt, Sample

CHECKPOINTS = Path(__file__).parents[1] / "datasets" / "shapes" / "checkpoints"
METADATA = {"tag": "colors", "include": [{"class": "circle", "count": 1, "color": "red"}]}


@pytest.mark.parametrize("name", ["mask_grpo", "trace_rl"])
def test_one_optimiser_step_by_hand(name: str) -> None:
    policy = load_policy(CHECKPOINTS / "mmada", vq=CHECKPOINTS / "magvit", max_prompt_length=24)
    prompts = [Prompt("0", "text_to_image", "a red circle", metadata=METADATA)] * 4
    optimizer = torch.optim.SGD(policy.model.parameters(), lr=0.1)
    generators = [generator("tutorial", row) for row in range(len(prompts))]

    rollout = sample(policy, policy.canvas(prompts), SamplerConfig(steps=12), generators)
    images = policy.decode(rollout.canvas, prompts)
    samples = [Sample.of(prompt, image) for prompt, image in zip(prompts, images, strict=True)]
    rewards = torch.tensor(build_reward({"name": "shapes", "mode": "partial"})(samples))
    advantages = group_advantages(rewards, num_generations=4, scale_rewards="group")

    algorithm = load_algorithm({"name": name})
    passes = draw_passes(rollout, algorithm, generators)
    scores = score(policy, rollout.canvas, passes)
    size = count_batch(rollout, passes, algorithm)
    loss, metrics = policy_loss(LossInputs(passes, scores, advantages), algorithm, size)
    loss.backward()

    gradients = [p.grad for p in policy.model.parameters() if p.grad is not None]
    assert rewards.isfinite().all() and len(set(rewards.tolist())) > 1
    assert gradients and all(bool(gradient.isfinite().all()) for gradient in gradients)
    assert any(bool(gradient.any()) for gradient in gradients)
    assert float(metrics["ratio"]) == 1.0 and float(metrics["approx_kl"]) == 0.0

    optimizer.step()
    with torch.no_grad():
        moved = score(policy, rollout.canvas, passes).logprobs - scores.logprobs
    gain = (moved.sum((0, 2)) / passes.scored.sum((0, 2)) * advantages).sum()
    assert float(gain) > 0
