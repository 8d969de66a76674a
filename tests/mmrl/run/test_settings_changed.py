"""Settings of a checkpoint against those of the run that resumes from it."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from mmrl.config import ConfigError
from mmrl.run.settings_changed import check_unchanged, dump_settings
from mmrl.run_config import RunConfig
from tests.mmrl.runs import run_config


def test_a_setting_that_is_newer_than_the_checkpoint_had_its_default() -> None:
    before = json.loads(dump_settings(RunConfig()))
    del before["weight_decay"]
    check_unchanged(before, RunConfig(), allowed=False)
    with pytest.raises(ConfigError, match=r"weight_decay was 0\.0 and is 0\.5"):
        check_unchanged(before, RunConfig(weight_decay=0.5), allowed=False)
    before["a_setting_that_is_gone"] = 3
    check_unchanged(before, RunConfig(), allowed=False)


def test_so_had_a_newer_setting_of_a_section(world: SimpleNamespace, tmp_path: Path) -> None:
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
