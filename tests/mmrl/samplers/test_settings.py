"""Samplers that cannot run are refused by name, before any model loads."""

import pytest

from mmrl.config import ConfigError
from mmrl.samplers import SamplerConfig, check_sampler
from tests.mmrl.text_canvases import LENGTH


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"eos": "ignore"}, r"sampler\.eos is 'ignore'; allowed: free, last, leave"),
        ({"window": 8}, r"sampler\.window is 8.*Set sampler\.cache to prefix or dual"),
        ({"name": "dynamic", "threshold": 1.5}, r"sampler\.threshold is 1\.5.*from 0 to 1"),
    ],
)
def test_settings_that_mean_nothing_are_refused_by_name(changes: dict, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        SamplerConfig(**changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"block_size": 5}, r"s\.block_size is 5; it must be a divisor of the 12 response"),
        ({"block_size": 3, "steps": 3}, r"s\.steps is 3; it must be a multiple of the 4 blocks"),
        (
            {"name": "emerge", "eos": "last"},
            r"eos is 'last'.*Only dynamic, static rank",
        ),
        ({"name": "stattic"}, r"sampler\.name is 'stattic'.*Did you mean 'static'"),
    ],
)
def test_combinations_that_cannot_run_are_refused_without_a_model(
    changes: dict, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        check_sampler(SamplerConfig(**{"name": "static", "steps": 12, **changes}), "s", LENGTH)
