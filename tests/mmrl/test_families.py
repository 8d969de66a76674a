"""Every sampler and every preset on every task of every family (`tests.models.small_policies`)."""

from copy import deepcopy
from dataclasses import replace
from functools import cache
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from accelerate import Accelerator
from torch import Tensor

from mmrl.algorithms import AlgorithmConfig, LossInputs, load_algorithm, policy_loss
from mmrl.algorithms.aggregation import BatchSize
from mmrl.algorithms.forwards import passes_per_rollout
from mmrl.estimators import draw_passes
from mmrl.generation.masked.samplers import RULES
from mmrl.models import Policy
from mmrl.models.families import FAMILIES
from mmrl.models.task_names import writes_images
from mmrl.pretrained.model_config import ModelConfig
from mmrl.rl_config import RLConfig
from mmrl.rollouts.rollout import RolloutBatch
from mmrl.rollouts.task_config import TaskConfig
from mmrl.samplers import SamplerConfig, count_steps, sample
from mmrl.training import micro_batches
from mmrl.training.trainer import Trainer
from mmrl.types import Rollout
from tests.mmrl.algorithms.test_presets import CAUSAL, PRESETS
from tests.mmrl.canvases import generators
from tests.models.small_policies import (
    CAUSAL_PAIRS,
    MASKED_PAIRS,
    POLICIES,
    small_policy,
    small_prompts,
)

NEEDS = {"spg": {"block_size": 4}, "stable_drl": {"block_size": 4}, "trace_rl": {"slice_size": 2}}
NEEDS |= {"trace_rl_value": {"slice_size": 2}, "step_merge": {"num_slices": 2}}
NEEDS |= {"just_grpo": {"slice_size": 4}, "bgpo": {"num_draws": 2}}
"""What fits a response of eight tokens in four steps."""
RULE_OF = {"fork_grpo": "fork"}
"""The sampler of methods that need another one than `static`."""


def combine(pairs: list[tuple[str, str]], names: list[str], every: int) -> list[Any]:
    """Every name with more than half of the pairs, and the other way round: without the slow tests
    with one in `every`."""
    return [
        pytest.param(pair, name, marks=[pytest.mark.slow] * ((row + column) % every != 0))
        for row, pair in enumerate(pairs)
        for column, name in enumerate(names)
        if (row + column) % every == 0 or (row + column) % 5 in (0, 1, 3)
    ]


def show(value: Any) -> str:
    """A part of the name of a combination."""
    return value if isinstance(value, str) else "-".join(value)


def own_sampler(family: str, task: str, preset: str = "") -> SamplerConfig:
    """What writes the completions of a family, for a method."""
    if FAMILIES[family].KIND == "causal":
        return SamplerConfig(name="autoregressive")
    return sampler(RULE_OF.get(preset, "static"), task)


def sampler(rule: str, task: str, **changes: Any) -> SamplerConfig:
    """Four steps; texts are written in two blocks."""
    block_size = None if writes_images(task) else 4
    return SamplerConfig(name=rule, steps=4, block_size=block_size, **changes)


def test_every_family_of_tokens_is_in_the_table() -> None:
    assert POLICIES.keys() == {name for name, each in FAMILIES.items() if each.KIND != "flow"}


@cache
def exact_policy(family: str) -> Policy:
    """In float64, where sums do not depend on the shape of a batch."""
    policy = small_policy(family)
    network = deepcopy(policy.network).double()
    return replace(policy, model=network, network=network)


@pytest.mark.parametrize(("pair", "name"), combine(MASKED_PAIRS, sorted(RULES), every=5), ids=show)
def test_a_sampler_writes_every_mask_and_a_row_is_what_it_is_alone(
    pair: tuple[str, str], name: str
) -> None:
    (family, task), prompts = pair, small_prompts(pair[1], 2)
    policy = exact_policy(family)
    canvas = policy.canvas(prompts)
    config = sampler(name, task, cfg_scale=0.0 if canvas.uncond_tokens is None else 1.5)
    done, again = (sample(policy, canvas, config, generators(2)) for _ in range(2))
    assert torch.equal(done.canvas.tokens, again.canvas.tokens)
    assert torch.equal(done.canvas.tokens[~canvas.response], canvas.tokens[~canvas.response])
    written = done.canvas.tokens[canvas.response]
    assert bool(((written >= canvas.columns[0]) & (written < canvas.columns[1])).all())
    assert not bool(torch.isin(written, torch.tensor([canvas.mask_id, *canvas.banned])).any())
    assert torch.equal(done.trace >= 0, canvas.response)
    assert len(policy.decode(done.canvas, prompts)) == 2
    for row, prompt in enumerate(prompts):
        alone = sample(policy, policy.canvas([prompt]), config, generators(2)[row : row + 1])
        assert torch.equal(responses(alone, 0), responses(done, row))


def responses(rollout: Rollout, row: int) -> Tensor:
    """[2, n]: the tokens that a row wrote, and when."""
    where = rollout.canvas.response[row]
    return torch.stack((rollout.canvas.tokens[row, where], rollout.trace[row, where]))


@cache
def finished(family: str, task: str, preset: str = "") -> RolloutBatch:
    """A group of two rollouts, one of them good."""
    policy, prompts = small_policy(family), small_prompts(task, 1) * 2
    config = own_sampler(family, task, preset)
    rollout = sample(policy, policy.canvas(prompts), config, generators(2))
    advantages, completions = torch.tensor([1.0, -0.5]), policy.decode(rollout.canvas, prompts)
    names = [(0, n) for n in range(2)]
    return RolloutBatch(prompts, rollout, list(completions), advantages, advantages, names, {})


def build_trainer(family: str, task: str, preset: str) -> tuple[Trainer, Any]:
    """A trainer on a copy of a small policy, and what it reads of a task."""
    algorithm = {"name": preset, "num_iterations": 2, **NEEDS.get(preset, {})}
    options = TaskConfig(
        task=task,
        num_prompts=1,
        num_generations=2,
        sampler=own_sampler(family, task, preset),
        algorithm=algorithm,
    )
    slow = {"learning_rate": 1e-30, "warmup_steps": 1000}
    config = RLConfig(model=ModelConfig(path=family), tasks={task: options}, bf16=False, **slow)
    policy, network = small_policy(family), deepcopy(small_policy(family).network)
    accelerator = Accelerator(cpu=True, mixed_precision="no")
    trainer = Trainer(config, replace(policy, model=network, network=network), accelerator)
    row = load_algorithm(options.algorithm)
    return trainer, SimpleNamespace(name=task, config=options, algorithm=row)


def loss_of_an_unmoved_policy(
    inputs: LossInputs, config: AlgorithmConfig, size: BatchSize
) -> tuple[Tensor, dict[str, Tensor]]:
    """`policy_loss` of log-probs that equal those they are compared with bit by bit."""
    scored = inputs.passes.scored
    for other in (inputs.old, inputs.reference):
        if other is not None:
            assert torch.equal(inputs.new.logprobs[scored], other.logprobs[scored])
    return policy_loss(inputs, config, size)


@pytest.mark.parametrize(
    ("pair", "name"),
    [*combine(MASKED_PAIRS, PRESETS, every=5), *combine(CAUSAL_PAIRS, CAUSAL, every=1)],
    ids=show,
)
def test_a_preset_starts_at_ratio_one_and_gives_every_trained_weight_a_gradient(
    pair: tuple[str, str], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(micro_batches, "policy_loss", loss_of_an_unmoved_policy)
    trainer, task = build_trainer(*pair, name)
    batch = finished(*pair, name if name in RULE_OF else "")
    values = trainer.update({task.name: (task, batch)})
    if task.algorithm.contrast == "none":
        assert values["ratio"] == pytest.approx(1.0) and values["approx_kl"] == 0.0
    else:
        assert values["old_deviation"] == 0.0
    assert values.get("kl", 0.0) == 0.0 and ("kl" in values) == (task.algorithm.beta > 0)
    assert ("loss/value_avg" in values) == (task.algorithm.value is not None)
    network, canvas = trainer.policy.network, batch.rollout.canvas
    length = int(canvas.response.sum(1).max())
    shape = count_steps(task.config.sampler, length), length, network.block_size
    passes = draw_passes(batch.rollout, task.algorithm, generators(2))
    assert len(passes) <= passes_per_rollout(task.algorithm, *shape)
    seeing = network.image_encoder.parameters() if network.sees else ()
    unseen = {id(p) for p in seeing} if canvas.features is None else set()
    gradients = {
        name: trainer.optimizers[0].state[parameter]["exp_avg"]
        for name, parameter in network.named_parameters()
        if parameter.requires_grad and id(parameter) not in unseen
    }
    assert all(bool(g.isfinite().all() and g.any()) for g in gradients.values())
    given = ~canvas.response
    if canvas.attend is not None:
        given &= canvas.attend
    if canvas.features is not None:
        given &= canvas.features.at < 0
    if "embed.weight" in gradients:  # no frozen encoder of the text
        assert bool(gradients["embed.weight"][canvas.tokens[given]].any(-1).all())
