"""Settings of a checkpoint against those of the run that resumes from it."""

import json

import pytest

from mmrl.config import ConfigError
from mmrl.run.settings_changed import check_unchanged, dump_settings
from mmrl.run_config import RunConfig


def test_a_setting_that_is_newer_than_the_checkpoint_had_its_default() -> None:
    before = json.loads(dump_settings(RunConfig()))
    del before["weight_decay"]
    check_unchanged(json.dumps(before), RunConfig(), allowed=False)
    with pytest.raises(ConfigError, match=r"weight_decay was 0\.0 and is 0\.5"):
        check_unchanged(json.dumps(before), RunConfig(weight_decay=0.5), allowed=False)
