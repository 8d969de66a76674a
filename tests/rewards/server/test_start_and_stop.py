"""Loading, failing to load, and an end that answers what was accepted."""

import json
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.rewards.server.live import live, words


def test_it_says_that_it_loads_and_stops_after_answering_what_it_accepted(tmp_path: Path) -> None:
    rewards = "rewards=[{name: moody, loading: 1.5, max_batch_size: 2}, {name: shapes}]"
    with live(tmp_path, rewards) as server:
        status, health = server.get("/v1/health")
        states = {reward["name"]: reward["status"] for reward in health["rewards"]}
        assert (status, health["status"], states["moody"]) == (200, "loading", "loading")
        asked = json.dumps({"id": "early", "reward": "moody", "items": []})
        status, headers, body = server.send("POST", "/v1/score", asked)
        assert (status, json.loads(body)["error"]["code"]) == (503, "loading")
        assert int(headers["retry-after"]) > 0
        server.loaded()
        with ThreadPoolExecutor(6) as clients:
            waiting = [
                clients.submit(
                    server.score, "moody", [words("a", seconds=0.3, score=n)], f"last {n}"
                )
                for n in range(6)
            ]
            # wait until all are accepted: two are scored, four wait
            while server.get("/v1/health")[1]["rewards"][0]["waiting"] < 4:
                time.sleep(0.01)
            assert server.stop() == 0
            assert [future.result()[0]["score"] for future in waiting] == [0, 1, 2, 3, 4, 5]
        assert server.log.read_text().endswith("stopped\n")
        with pytest.raises(ConnectionError):
            server.get("/v1/health")


def test_a_reward_that_cannot_be_loaded_is_named_and_the_others_are_served(tmp_path: Path) -> None:
    broken, slow = "{name: moody, broken: true}", "{name: moody, key: slow, loading: 60}"
    rewards = f"rewards=[{broken}, {slow}, {{name: shapes}}]"
    with live(tmp_path, rewards) as server:
        while (health := server.get("/v1/health")[1])["status"] == "loading":
            time.sleep(0.05)
        moody = health["rewards"][0]
        assert (health["status"], moody["status"]) == ("failed", "failed")
        assert "moody.model does not exist" in moody["error"]
        status, answer = server.post({"id": "a", "reward": "moody", "items": []})
        assert (status, answer["error"]["code"]) == (503, "failed")
        server.process.send_signal(signal.SIGINT)
        assert server.process.wait(timeout=30) == 0, "also while something loads"
