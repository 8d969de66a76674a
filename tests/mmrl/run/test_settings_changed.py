"""Settings of a checkpoint against those of the run that resumes from it."""

import json
import logging
from pathlib import Path

import pytest

from mmrl.algorithms.presets import resolve_method
from mmrl.config import ConfigError
from mmrl.run.settings_changed import check_unchanged, dump_settings
from mmrl.run_config import RunConfig
from tests.mmrl.runs import World, run_config


def test_a_setting_that_is_newer_than_the_checkpoint_had_its_default() -> None:
    before = json.loads(dump_settings(RunConfig()))
    del before["weight_decay"]
    check_unchanged(before, RunConfig(), allowed=False)
    with pytest.raises(ConfigError, match=r"weight_decay was 0\.0 and is 0\.5"):
        check_unchanged(before, RunConfig(weight_decay=0.5), allowed=False)
    before["a_setting_that_is_gone"] = 3
    check_unchanged(before, RunConfig(), allowed=False)


def test_so_had_a_newer_setting_of_a_section(world: World, tmp_path: Path) -> None:
    config = run_config(world, tmp_path)
    before = json.loads(dump_settings(config))
    del before["tasks"]["shapes"]["sampler"]["cache_ratio"]
    del before["tasks"]["shapes"]["accuracy_rewards"]
    check_unchanged(before, config, allowed=False)
    config.tasks["shapes"].sampler.cache_ratio = 0.5
    with pytest.raises(ConfigError, match=r"cache_ratio was 0\.9 and is 0\.5"):
        check_unchanged(before, config, allowed=False)
    config = run_config(world, tmp_path)
    config.tasks["shapes"].accuracy_rewards = ["redness"]
    with pytest.raises(ConfigError, match=r"accuracy_rewards was \[\] and is \['redness'\]"):
        check_unchanged(before, config, allowed=False)


def test_columns_of_a_method_that_are_newer_had_their_presets_value_and_older_ones_are_named(
    world: World, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = run_config(world, tmp_path)
    before = json.loads(dump_settings(config))
    task = before["tasks"]["shapes"]
    method = task["algorithm"] = resolve_method(config.tasks["shapes"].algorithm, "algorithm")
    config.tasks["shapes"].algorithm = dict(method)
    del method["baseline"]
    task["sampler"] |= {"threshold": 0.9}
    with caplog.at_level(logging.WARNING):
        check_unchanged(before, config, allowed=False)
    [record] = caplog.records
    assert record.getMessage().endswith(": tasks.shapes.sampler.threshold was 0.9 and is None")
    method["strategy"] = "full"
    with pytest.raises(ConfigError, match=r"algorithm\.strategy was 'full' and is 'random'"):
        check_unchanged(before, config, allowed=False)
