"""Settings of supervised runs: how long they are."""

import pytest

from mmrl.config import ConfigError
from mmrl.sft_config import SFTConfig, count_steps


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
