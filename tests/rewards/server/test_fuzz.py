"""What no honest client sends is answered by name, costs nothing that stays, and opens no file."""

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.rewards.server import fuzzed_requests as requests
from tests.rewards.server.live import Live, live, words


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """A server with the limits of the fuzz; its scores need no model."""
    limits = [f"limits.{key}={value}" for key, value in requests.LIMITS.items()]
    rewards = "rewards=[{name: shapes}, {name: shapes, key: clip, mode: partial}]"
    folder = tmp_path_factory.mktemp("fuzz")
    (folder / "canary.png").write_bytes(b"nobody may open this")
    with live(folder, rewards, *limits, "token_env=TOKEN", token=requests.TOKEN) as server:
        server.loaded()
        for kind in requests.KINDS:  # whatever is imported once
            server.exchange(requests.KINDS[kind](Random(0), kind, "x").raw)
        server.opened_before = len(server.touched())
        yield server


@settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.sampled_from(sorted(requests.KINDS)), st.randoms(use_true_random=False))
@pytest.mark.slow
def test_every_request_is_answered_by_name_and_no_file_is_read(
    target: Live, kind: str, random: Random
) -> None:
    canary = str(target.log.parent / "canary.png")
    sent = requests.KINDS[kind](random, kind, canary)
    assert requests.problem(sent, target.exchange(sent.raw)) is None
    assert target.touched()[target.opened_before :] == []


@pytest.mark.slow
def test_afterwards_it_scores_and_holds_nothing(target: Live, tmp_path: Path) -> None:
    assert target.score("shapes", [words("a")])[0]["error"]["code"] == "wrong_input"
    assert target.value("reward_server_held_bytes") == 0
    assert not [line for line in target.lines() if line["level"] == "error"]
    assert target.stop() == 0
