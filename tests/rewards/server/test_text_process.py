"""A text that takes too long is interrupted and fails alone; the server stays free."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.rewards.server.live import Live, live, words

OWN = """
import os, re, time

def own(samples):
    scores = []
    for sample in samples:
        if sample.completion == "die":
            os._exit(7)
        if sample.completion == "sleep":
            time.sleep(60)
        re.match("(a+)+b", sample.completion)  # exponential, with the interpreter's lock held
        scores.append(float(len(sample.completion)))
    return scores
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    folder = tmp_path_factory.mktemp("server")
    (folder / "own.py").write_text(OWN)
    rewards = f"rewards=[{{name: '{folder}/own.py:own'}}, {{name: math}}]"
    with live(folder, rewards, "limits.text_seconds=1") as running:
        while running.get("/v1/health")[1]["status"] == "loading":
            time.sleep(0.2)
        yield running


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        ("a" * 60, "timeout", "own took more than 1 seconds (limits.text_seconds)."),
        ("sleep", "timeout", "own took more than 1 seconds (limits.text_seconds)."),
        ("die", "reward_failed", "own ended its process on this text."),
    ],
)
def test_a_text_that_takes_too_long_fails_alone_and_no_other_reward_waits(
    server: Live, text: str, code: str, said: str
) -> None:
    items = [words("0", "xy"), words("1", text), words("2", "xyz")]
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(server.score, "own", items, text[:5])
        started = time.monotonic()
        right = server.score("math", [words("m", "\\boxed{4}", answer="4")], text[:5])
        assert right[0]["score"] == 1.0 and time.monotonic() - started < 20
        found = waiting.result()
    assert [item["score"] for item in found] == [2.0, None, 3.0]
    assert found[1]["error"] == {"code": code, "message": said}
    assert server.value("reward_server_items_total", reward="own", outcome=code) >= 1
