"""Several optimiser steps on one rollout batch: who is in which, and what they are steps of."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from mmrl.config import ConfigError
from mmrl.estimators import score
from mmrl.generation.masked.canvas import MaskedCanvas
from mmrl.generation.masked.hidden import Hidden
from mmrl.planning.plan import describe
from mmrl.planning.run_checks import check_geometry
from mmrl.rl_config import RLConfig
from mmrl.rollouts.rollout import RolloutBatch
from mmrl.training.micro_batches import split_mini_batches
from mmrl.training.trainer import Trainer
from mmrl.types import Passes, Rollout
from tests.mmrl.pair import Pair
from tests.mmrl.runs import World, command_line, metrics, rollouts, run_config, trainer_of

ORDER = (0, "mini_batches", "shapes", 7, 0)
RATE = 0.5
COARSE = """
def reds(samples):
    colours = [each.completion.resize((1, 1)).getpixel((0, 0)) for each in samples]
    return [round(red / 16) / 4 for red, *_ in colours]
"""
"""A reward that does not feel how an image tokenizer rounds."""


def batch_of(prompts: Sequence[int], size: int) -> RolloutBatch:
    """A batch of nothing but its places: groups of `size` for some prompts of a step."""
    names = [(prompt, sample) for prompt in prompts for sample in range(size)]
    places = torch.arange(len(names))[:, None]
    canvas = MaskedCanvas(places, places >= 0, None, (0, 9), 9)
    rollout = Rollout(canvas, places, places.float(), {})
    known = torch.tensor([10.0 * prompt + sample for prompt, sample in names])
    nothing, texts = [None] * len(names), [str(name) for name in names]
    more: Any = (known, known, names, {"key": known.tolist()})
    return RolloutBatch(nothing, rollout, texts, *more, left_out=known > 5)  # type: ignore[arg-type]


@pytest.mark.parametrize(("number", "size"), [(2, 4), (4, 6), (8, 4), (3, 2)])
def test_every_rollout_is_in_one_mini_batch_whatever_the_number_of_processes(
    number: int, size: int
) -> None:
    whole = split_mini_batches(batch_of(range(12), size), number, size, *ORDER)
    halves = [
        split_mini_batches(batch_of(half, size), number, size, *ORDER)
        for half in (range(6), range(6, 12))
        if len(half) * size % number == 0
    ]
    if len(halves) == 2:
        shared = [first.names + second.names for first, second in zip(*halves, strict=True)]
        assert shared == [part.names for part in whole]
    assert sorted(name for part in whole for name in part.names) == batch_of(range(12), size).names
    assert {len(part) for part in whole} == {12 * size // number}
    assert [part.names for part in whole] != [
        part.names
        for part in split_mini_batches(batch_of(range(12), size), number, size, *ORDER[:-1], 1)
    ]


def test_groups_that_are_to_be_whole_are_in_one_mini_batch() -> None:
    whole = split_mini_batches(batch_of(range(12), 4), 3, 4, *ORDER, whole=True)
    halves = [
        split_mini_batches(batch_of(half, 4), 3, 4, *ORDER, whole=True)
        for half in (range(6), range(6, 12))
    ]
    shared = [first.names + second.names for first, second in zip(*halves, strict=True)]
    assert shared == [part.names for part in whole]
    for part in whole:
        groups = [part.names[first : first + 4] for first in range(0, len(part), 4)]
        assert groups == [[(group[0][0], sample) for sample in range(4)] for group in groups]
    prompts = [[name[0] for name in part.names[::4]] for part in whole]
    assert sorted(sum(prompts, [])) == [*range(12)] and prompts[0] != [0, 1, 2, 3]


def test_a_mini_batch_has_everything_of_its_rollouts() -> None:
    batch = batch_of(range(2), 4)
    assert split_mini_batches(batch, 1, 4, *ORDER) == [batch]
    for part in split_mini_batches(batch, 2, 4, *ORDER):
        values = [10.0 * prompt + sample for prompt, sample in part.names]
        assert part.advantages.tolist() == part.rewards.tolist() == part.scores["key"] == values
        assert part.completions == [str(name) for name in part.names]
        assert part.left_out is not None and part.left_out.tolist() == [v > 5 for v in values]
        rows = [4 * prompt + sample for prompt, sample in part.names]
        assert part.rollout.canvas.tokens[:, 0].tolist() == rows
        assert part.rollout.trace[:, 0].tolist() == rows


def config_of(world: World, output: Path, **changes: Any) -> RLConfig:
    """Plain gradient descent by large steps, on whole completions."""
    algorithm = {"strategy": "full", "beta": 0.0, "num_iterations": 1}
    algorithm |= {**changes.pop("algorithm", {})}
    plain = {"optimizer": "sgd", "momentum": 0.0, "learning_rate": RATE, "max_grad_norm": 0.0}
    model = {"dtype": "float64", **changes.pop("model", {})}
    return run_config(
        world, output, algorithm=algorithm, model=model, num_mini_batches=2, **{**plain, **changes}
    )


def weights(trainer: Trainer) -> dict[str, Tensor]:
    named = trainer.trained.named_parameters()
    return {name: p.detach().clone() for name, p in named if p.requires_grad}


def hidden_response(canvas: MaskedCanvas) -> Passes:
    where = canvas.response[None]
    return Passes(Hidden(where), where, where.float())


def step_by_hand(trainer: Trainer, batch: RolloutBatch, rows: list[int], old: Tensor) -> None:
    """A gradient step on the clipped surrogate of some rollouts, the mean over their tokens."""
    passes = hidden_response(batch.rollout.canvas)
    new = score(trainer.policy, batch.rollout.canvas, passes).logprobs[0]
    ratio, gain = (new - old).exp(), batch.advantages[:, None].to(new.dtype)
    clipped = (ratio * gain).minimum(ratio.clamp(0.8, 1.2) * gain)
    loss = -clipped[rows][:, batch.rollout.canvas.response[0]].mean()
    for parameter, gradient in zip(
        (parameters := [p for p in trainer.trained.parameters() if p.requires_grad]),
        torch.autograd.grad(loss, parameters, allow_unused=True),
        strict=True,
    ):
        parameter.data -= RATE * (0 if gradient is None else gradient)


@pytest.mark.parametrize("micro", [4, 1])
def test_mini_batches_are_steps_against_the_logprobs_of_the_policy_that_sampled(
    world: World, tmp_path: Path, micro: int
) -> None:
    config = config_of(world, tmp_path, per_device_train_batch_size=micro)
    trainer, other = trainer_of(config), trainer_of(config)
    work = rollouts(config, trainer)
    _, batch = work["shapes"]
    batch.advantages = torch.linspace(-1, 1, len(batch)) * 4
    values = trainer.update(work)
    assert trainer.schedules[0].state_dict()["last_epoch"] == 2
    assert config.optimizer_steps == 2 * config.max_steps
    assert values["approx_kl"] > 1e-4, "the second mini-batch is of a policy that has moved"
    assert values["clip_ratio/low_mean"] + values["clip_ratio/high_mean"] > 0
    with torch.no_grad():
        passes = hidden_response(batch.rollout.canvas)
        old = score(other.policy, batch.rollout.canvas, passes).logprobs[0]
    names = config.seed, "mini_batches", "shapes", 0, 0
    for part in split_mini_batches(batch, 2, 4, *names):
        rows = [batch.names.index(name) for name in part.names]
        step_by_hand(other, batch, rows, old)
    for name, tensor in weights(trainer).items():
        torch.testing.assert_close(tensor, weights(other)[name], atol=1e-6, rtol=0)


def test_rollouts_must_divide_among_mini_batches(world: World, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="num_mini_batches is 0; it must be at least 1"):
        run_config(world, tmp_path, num_mini_batches=0)
    config = run_config(world, tmp_path, num_mini_batches=8, per_device_train_batch_size=None)
    check_geometry(config, 1)
    said = "divisor of the 4 rollouts per device and step of task 'shapes', such as .1, 2, 4."
    with pytest.raises(ConfigError, match=f"num_mini_batches is 8; .* {said}"):
        check_geometry(config, 2)
    large = run_config(world, tmp_path, num_mini_batches=4)
    with pytest.raises(ConfigError, match="size is 4; .* of the 2 rollouts per device and mini-b"):
        check_geometry(large, 1)
    plan = " ".join(str(describe(config)).split())
    assert "num_mini_batches=8" in plan
    assert "16 optimiser steps of 1 micro-batches of 1 rollouts" in plan


@pytest.mark.slow
def test_a_loss_over_groups_is_the_same_on_two_processes(
    world: World, pair: Pair, tmp_path: Path
) -> None:
    method = "{name: stable_drl, block_size: 16, num_iterations: 2, epsilon: 0.01}"
    more = ["model.dtype=float64", "max_steps=2", "tasks.shapes.num_prompts=4"]
    more += ["num_mini_batches=2", f"tasks.shapes.algorithm={method}"]
    (tmp_path / "reward.py").write_text(COARSE)
    more += [f"tasks.shapes.rewards=[{{name: '{tmp_path}/reward.py:reds'}}]", "learning_rate=1e-4"]
    words = [*command_line(world, tmp_path), *more, "per_device_train_batch_size=2"]
    pair.same_as_one(tmp_path, words, "per_device_train_batch_size=4")
    steps = [line for line in metrics(tmp_path / "one") if "ratio" in line]
    assert len(steps) == 2 and all(line["ratio"] != 1 for line in steps)
