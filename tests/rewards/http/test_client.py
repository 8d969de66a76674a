"""Rewards in client mode against servers of the project's protocol, well and badly behaved."""

import json
import logging
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from PIL import Image

from mmrl.config import ConfigError
from mmrl.rewards import PartialFailure, build_reward
from mmrl.rewards.http.client import ClientReward
from mmrl.rewards.scoring.failures import RewardError
from mmrl.rewards.scoring.overlap import Overlap
from mmrl.rewards.scoring.scorer import Scorer
from mmrl.types import Sample
from tests.rewards.scripted_server import Answered, Asked, scripted

SECRET = "a-very-secret-token"


def entry(*urls: str, **changes: Any) -> dict[str, Any]:
    return {"name": "mine", "mode": "client", "url": list(urls), **changes}


def client(*urls: str, **changes: Any) -> ClientReward:
    reward = build_reward(entry(*urls, **changes))
    assert isinstance(reward, ClientReward)
    return reward


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mmrl.rewards.http.service.FIRST_PAUSE", 0.01)


def samples(number: int) -> list[Sample]:
    return [Sample(f"prompt {n}", "x" * n) for n in range(number)]


def scored(asked: Asked, change: Callable[[list[Any]], Any] = lambda items: items) -> Answered:
    """The length of every completion, as the server of the project answers."""
    content = json.loads(asked.body)
    items = [
        {"id": item["id"], "score": len(item["completion"]), "components": {}, "error": None}
        for item in content["items"]
    ]
    answer = {"id": content["id"], "reward": content["reward"], "version": "1"}
    return Answered(json.dumps({**answer, "items": change(items)}).encode())


def failures(reward: ClientReward, batch: list[Sample]) -> list[Any]:
    with pytest.raises(PartialFailure) as caught:
        reward(batch)
    return caught.value.results


def test_scores_come_in_order_in_requests_of_bounded_size_over_kept_connections() -> None:
    with scripted(scored, seconds=0.05) as server:
        reward = client(server.url, batch_size=7, concurrency=3)
        assert reward(samples(50)) == [float(n) for n in range(50)]
        assert reward([]) == []
        sizes = [len(json.loads(asked.body)["items"]) for asked in server.asked]
        assert sorted(sizes) == [1, *[7] * 7] and server.most == 3
        reward(samples(30))
        assert server.connections <= 3
        ids = [item["id"] for asked in server.asked for item in json.loads(asked.body)["items"]]
        assert len(set(ids)) == len(ids) == 80, "no id is ever used again"


WRONG_ITEMS: dict[str, Callable[[list[Any]], Any]] = {
    "lacks an id": lambda items: items[1:],
    "doubles one": lambda items: [*items, items[0]],
    "swaps one for another": lambda items: [items[0], *items[:-1]],
    "has one that is no text": lambda items: [{**items[0], "id": ["a"]}, *items[1:]],
    "is no list": lambda items: {"0": items},
    "is a list of nothing": lambda items: [None] * len(items),
    "has no score": lambda items: [{"id": item["id"]} for item in items],
    **{
        f"has the score {score}": lambda items, score=score: [{**i, "score": score} for i in items]
        for score in (float("nan"), float("inf"), True, "1", 10**400)
    },
}


@pytest.mark.parametrize("wrong", WRONG_ITEMS)
def test_an_answer_that_does_not_fit_gives_no_score(wrong: str) -> None:
    def answer(asked: Asked) -> Answered:
        return scored(asked, WRONG_ITEMS[wrong]) if b"prompt 5" in asked.body else scored(asked)

    with scripted(answer) as server:
        results = failures(client(server.url, batch_size=4), samples(12))
        assert [n for n, each in enumerate(results) if isinstance(each, Exception)] == [4, 5, 6, 7]
        assert results[8:] == [8.0, 9.0, 10.0, 11.0]
        assert len(server.asked) == 3, "it is not asked again"


def test_an_item_with_an_error_fails_alone_and_null_does_not_apply() -> None:
    def change(items: list[Any]) -> list[Any]:
        error = {"code": "no_score", "message": "The reward returned nan."}
        items[1] = {**items[1], "score": None, "error": error}
        items[2] = {**items[2], "score": None}
        return items

    with scripted(lambda asked: scored(asked, change)) as server:
        results = failures(client(server.url), samples(4))
        assert "no_score" in str(results[1])
        assert [results[n] for n in (0, 2, 3)] == [0.0, None, 3.0]


@pytest.mark.parametrize("value", [object(), float("nan"), Image.new("RGB", (1, 1))])
def test_metadata_that_cannot_be_sent_is_named_by_its_key_and_fails_alone(value: object) -> None:
    with scripted(scored) as server:
        batch = [Sample("p", "abc", {"fine": 1, "bad": value}), *samples(2)]
        results = failures(client(server.url), batch)
        assert results[1:] == [0.0, 1.0]
        assert "{'bad': " in str(results[0]) and "'p' cannot be sent as JSON" in str(results[0])


def test_a_busy_server_slows_the_client_and_fails_nothing_before_the_deadline() -> None:
    def answer(asked: Asked) -> Answered:
        if asked.number < 12:
            return Answered(b"{}", 429, {"Retry-After": "1"} if asked.number < 4 else {})
        return scored(asked)

    with scripted(answer) as server:
        started = time.monotonic()
        reward = client(server.url, batch_size=2, concurrency=4)
        assert reward(samples(8)) == [float(n) for n in range(8)]
        assert time.monotonic() - started >= 1, "Retry-After is honoured"


def test_a_request_that_is_too_large_is_halved_and_an_item_that_is_rejected_fails_alone() -> None:
    def answer(asked: Asked) -> Answered:
        if len(json.loads(asked.body)["items"]) > 7:
            return Answered(b"{}", 413)
        strange = b"prompt 5" in asked.body
        return Answered(b'{"error": {"code": "no"}}', 422) if strange else scored(asked)

    with scripted(answer) as server:
        results = failures(client(server.url), samples(9))
        assert "422" in str(results.pop(5)) and results == [0.0, 1, 2, 3, 4, 6, 7, 8]
        assert len({asked.body for asked in server.asked}) == len(server.asked) <= 9


def test_a_dead_server_costs_no_score_and_one_that_is_back_has_its_share() -> None:
    down = True

    def moody(asked: Asked) -> Answered:
        return Answered(b"{}", 502) if down else scored(asked)

    with scripted(scored) as well, scripted(moody) as ill:
        reward = client(ill.url, well.url, batch_size=1, concurrency=2)
        assert reward(samples(40)) == [float(n) for n in range(40)]
        assert len(well.asked) == 40
        down, before = False, len(ill.asked)
        assert reward(samples(10)) == [float(n) for n in range(10)]
        assert len(ill.asked) == before + 5


def test_when_all_servers_are_dead_all_of_them_are_named_within_the_deadline() -> None:
    urls = ["http://127.0.0.1:9", "http://127.0.0.1:11"]
    scorer = Scorer([entry(*urls, deadline_s=3.0)])
    started = time.monotonic()
    with pytest.raises(RewardError, match="reward 'mine' failed on 5 of 5") as caught:
        scorer.score(samples(5))
    assert time.monotonic() - started < 6
    assert all(url in str(caught.value) for url in urls)


def test_the_token_comes_from_the_environment_and_is_in_no_message(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("MMRL_REWARD_TOKEN", SECRET)

    def answer(asked: Asked) -> Answered:
        if asked.headers["Authorization"] == f"Bearer {SECRET}" and asked.number > 1:
            return scored(asked)
        echo = json.dumps({"error": asked.headers["Authorization"]}).encode()
        return Answered(echo, 401 if asked.number else 200)

    with scripted(answer) as server, caplog.at_level(logging.DEBUG):
        reward = client(server.url, token_env="MMRL_REWARD_TOKEN")
        results = [failures(reward, samples(1))[0] for _ in range(2)]
        assert "Bearer ***" in str(results[1]) and reward(samples(1)) == [0.0]
        assert SECRET not in f"{results} {reward!r} {caplog.text}"
    monkeypatch.delenv("MMRL_REWARD_TOKEN")
    with pytest.raises(ConfigError, match="mine.token_env is 'MMRL_REWARD_TOKEN'.*Export it"):
        client("http://127.0.0.1:9", token_env="MMRL_REWARD_TOKEN")


def health(status: str = "ok", name: str = "mine") -> Answered:
    told = {"name": name, "status": status, "error": None, "version": "1"}
    return Answered(json.dumps({"status": status, "rewards": [told]}).encode())


def test_ready_tells_what_each_server_lacks(caplog: pytest.LogCaptureFixture) -> None:
    with (
        scripted(lambda asked: health()) as fine,
        scripted(lambda asked: health(name="other")) as wrong,
    ):
        assert client(fine.url).ready() == "" and fine.asked[0].path == "/v1/health"
        said = client(wrong.url, "http://127.0.0.1:9").ready()
        assert "does not serve mine" in said and "other" in said and "127.0.0.1:9" in said
        assert client(fine.url, wrong.url).ready() == ""
        assert "without some of its servers" in caplog.text


WRONG = [
    ({"url": []}, "mine.url: .*there must be a URL"),
    ({"url": "ftp://host"}, "mine.url: the URL 'ftp://host' is not valid"),
    ({"batch_size": 0}, r"rewards\[0\].batch_size is 0"),
    ({"concurrency": 0}, r"rewards\[0\].concurrency is 0"),
    ({"timeout_s": 0, "protocol": "unirl"}, r"rewards\[0\].timeout_s is 0"),
    ({"protocol": "mmlr"}, "protocol is 'mmlr'; allowed: .*Did you mean 'mmrl'"),
    ({"urll": ["http://host"]}, "urll"),
    ({"name": "a/b"}, "name is 'a/b'; it must be letters"),
    ({"name": "clip", "pretrained": "openai"}, "pretrained"),
    ({"name": "hps", "checkpoint": "x"}, "checkpoint"),
]


@pytest.mark.parametrize(("changes", "said"), WRONG, ids=lambda value: str(value)[:40])
def test_an_entry_that_cannot_be_is_refused_by_key(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        build_reward({**entry("http://127.0.0.1:9"), **changes}, "rewards[0]")


def test_a_run_that_ends_stops_the_requests_of_its_served_rewards() -> None:
    asked = threading.Event()

    def answer(_: Asked) -> Answered:
        asked.set()
        time.sleep(0.2)
        return Answered(b"", 429, {"Retry-After": "1"})

    with scripted(answer) as server:
        scorer = Scorer([entry(server.url, deadline_s=60.0)])
        with Overlap([scorer]):
            scorer.begin(3).add(samples(3))
            assert asked.wait(20)
            started = time.monotonic()
    assert time.monotonic() - started < 10
