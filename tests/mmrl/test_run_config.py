"""Settings of runs: learning-rate schedules, and how long supervised runs are."""

import math
from typing import Any

import pytest
import torch

from mmrl.config import ConfigError
from mmrl.run_config import RunConfig, build_schedule, check_schedule
from mmrl.sft_config import SFTConfig, count_steps


def settings_of(name: str, arguments: dict[str, Any]) -> RunConfig:
    return RunConfig(
        learning_rate=0.5, lr_scheduler_type=name, lr_scheduler_kwargs=arguments, warmup_steps=2
    )


WSD = {"num_decay_steps": 4, "decay_type": "linear", "min_lr_ratio": 0.1}
VALUES = [
    ("constant_with_warmup", {}, [0, 0.5, 1, 1, 1, 1, 1, 1, 1]),
    ("cosine", {}, [0, 0.5, *((1 + math.cos(math.pi * n / 6)) / 2 for n in range(7))]),
    ("warmup_stable_decay", WSD, [0.1, 0.55, 1, 1, 1, 0.775, 0.55, 0.325, 0.1]),
    (
        "cosine_with_min_lr",
        {"min_lr": 0.05},
        [0, 0.5, *(0.1 + 0.9 * (1 + math.cos(math.pi * n / 6)) / 2 for n in range(7))],
    ),
]


@pytest.mark.parametrize(("name", "arguments", "expected"), VALUES, ids=lambda value: str(value))
def test_rates_rise_over_the_warm_up_and_then_follow_the_schedule(
    name: str, arguments: dict[str, Any], expected: list[float]
) -> None:
    settings = settings_of(name, arguments)
    check_schedule(settings, 8)
    # a value model has a rate of its own
    groups = [{"params": [torch.zeros(1)], "lr": rate} for rate in (0.5, 0.05)]
    optimizer = torch.optim.AdamW(groups)
    schedule, rates = build_schedule(optimizer, settings, 8), []
    for _ in range(9):
        rates.append(schedule.get_last_lr())
        optimizer.step()
        schedule.step()
    assert [full for full, _ in rates] == pytest.approx([0.5 * value for value in expected])
    assert [scaled for _, scaled in rates] == pytest.approx([0.05 * value for value in expected])


@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        ("cosin", {}, "Did you mean 'cosine'"),
        ("reduce_lr_on_plateau", {}, "lr_scheduler_type is 'reduce_lr_on_plateau'"),
        ("warmup_stable_decay", {}, "num_decay_steps"),
        ("cosine", {"foo": 1}, "keys of num_cycles for lr_scheduler_type=cosine"),
        ("polynomial", {"lr_end": 1.0}, "lr_end"),
    ],
)
def test_a_schedule_that_would_fail_later_is_refused(
    name: str, arguments: dict[str, Any], said: str
) -> None:
    settings = settings_of(name, arguments)
    with pytest.raises(ConfigError, match="lr_scheduler_") as error:
        check_schedule(settings, 8)
    assert said in str(error.value)


@pytest.mark.parametrize(
    ("epochs", "world_size", "steps"),
    [(None, 1, 1000), (20, 1, 4950), (20, 8, 619), (0.5, 1, 124), (0.0001, 1, 1)],
)
def test_epochs_become_steps_by_the_examples_of_a_step(
    epochs: float | None, world_size: int, steps: int
) -> None:
    config = SFTConfig(num_train_epochs=epochs, per_device_train_batch_size=1)
    config.gradient_accumulation_steps = 4
    assert count_steps(config, 990, world_size) == steps


def test_epochs_of_data_of_unknown_length_are_refused() -> None:
    with pytest.raises(ConfigError, match="it must be null for streamed data"):
        count_steps(SFTConfig(num_train_epochs=2), None, 1)
    with pytest.raises(ConfigError, match="num_train_epochs"):
        SFTConfig(num_train_epochs=0)
