"""Versions of served rewards: kept in a checkpoint, and known again by the run that continues."""

import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mmrl.rewards.http.protocols.mmrl import MMRLReward
from mmrl.rewards.scoring.scorer import Scorer
from mmrl.training.reward_versions import read_versions, write_versions


def tasks() -> Any:
    entry = {"name": "clip", "mode": "client", "url": "http://127.0.0.1:9"}
    scorer = Scorer([entry, {"name": "jpeg"}])
    return {"draw": SimpleNamespace(scorer=scorer, eval_scorer=scorer)}


def reward(of: Any) -> MMRLReward:
    return of["draw"].scorer.terms[0].reward


def test_a_run_that_is_resumed_is_told_when_the_server_is_of_another_version(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    before, after = tasks(), tasks()
    write_versions(before, tmp_path)
    assert not list(tmp_path.iterdir()), "nothing has scored"
    reward(before)._note("clip-1")
    write_versions(before, tmp_path)
    read_versions(after, tmp_path)
    assert reward(after).versions == {"clip-1"}
    with caplog.at_level(logging.WARNING):
        reward(after)._note("clip-2")
    assert "different versions: clip-1 and clip-2" in caplog.text


def test_a_checkpoint_without_versions_is_one_without_served_rewards(tmp_path: Path) -> None:
    read_versions(tasks(), tmp_path)
