"""The client of services against a real server: what is tried again, what is final, how long."""

import gzip
import socket
import threading
import time
from contextlib import ExitStack
from typing import Any

import pytest

from mmrl.rewards.http.service import Deadline, Refused, Service, Unreachable, Unreadable
from tests.rewards.judge_server import counts
from tests.rewards.scripted_server import Answered, scripted

SECRET = "sk-very-secret-0123456789"


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mmrl.rewards.http.service.FIRST_PAUSE", 0.01)


def post(service: Service, path: str, content: Any, seconds: float) -> Any:
    [answer] = service.post_all(path, [content], Deadline(seconds))
    if isinstance(answer, Exception):
        raise answer
    return answer


def ask(service: Service, model: str, seconds: float = 20.0, text: str = "hello") -> Any:
    part = {"type": "text", "text": text}
    content = {"model": model, "messages": [{"role": "user", "content": [part]}]}
    return post(service, "/chat/completions", content, seconds)


def impatient(url: str, **settings: Any) -> Service:
    return Service([url], **{"timeout_s": 5.0, **settings})


@pytest.mark.parametrize("fault", ["busy", "broken", "half", "silent"])
def test_what_may_pass_is_tried_again_until_there_is_an_answer(url: str, fault: str) -> None:
    answer = ask(impatient(url), f"{fault}-2", text=fault)
    assert answer["choices"][0]["message"]["content"]
    assert counts(url)["asked"][f"{fault}-2"] == 3


def test_an_answer_that_is_no_json_is_final_and_named_as_such(url: str) -> None:
    with pytest.raises(Unreadable, match="no JSON.*<html>"):
        ask(impatient(url), "garbage")
    assert counts(url)["asked"]["garbage"] == 1


def test_the_pause_that_a_service_asks_for_is_kept(url: str) -> None:
    started = time.monotonic()
    ask(impatient(url), "patient-1")
    assert 1 <= time.monotonic() - started < 5
    started = time.monotonic()
    with pytest.raises(Unreachable, match="503.* 1 tries"):
        ask(impatient(url), "hours")
    assert time.monotonic() - started < 1, "no pause is begun that ends after the deadline"


@pytest.mark.parametrize("fault", ["slow", "drip"])
def test_a_deadline_holds_whether_a_service_is_silent_or_says_a_byte_at_a_time(
    url: str, fault: str
) -> None:
    started = time.monotonic()
    with pytest.raises(Unreachable, match="TimeoutError"):
        ask(impatient(url), fault, seconds=0.7)
    assert 0.5 < time.monotonic() - started < 2.5


def test_connections_are_kept_and_one_that_was_closed_meanwhile_is_no_failed_try(url: str) -> None:
    service, before = impatient(url), counts(url)["connections"]
    for n in range(5):
        ask(service, "right", text=f"kept {n}")
    assert counts(url)["connections"] == before + 2, "one, and that of the second look"
    for n in range(3):
        ask(service, "leaving", text=f"left {n}")
        time.sleep(0.05)


@pytest.mark.parametrize(
    "settings",
    [{"urls": ["localhost:8000"]}, {"urls": ["ftp://host/v1"]}, {"urls": ["http:///v1"]}]
    + [{"urls": ["http://me:hunter2@host/v1"]}],
    ids=str,
)
def test_settings_that_cannot_be_are_refused_without_showing_secrets(settings: dict) -> None:
    with pytest.raises(ValueError) as caught:
        Service(**{"urls": ["http://host/v1"], **settings})
    assert not any(secret in str(caught.value) for secret in (SECRET, "hunter2"))


def test_a_server_that_starts_again_is_waited_for() -> None:
    with scripted(lambda asked: Answered(b"{}")) as before:
        address = before.url
    service = Service([address])
    port, began = int(address.rpartition(":")[2]), threading.Event()

    def start() -> None:
        with scripted(lambda asked: Answered(b'"back"'), port=port) as again:
            began.set()
            while not again.asked:
                time.sleep(0.01)
            time.sleep(0.2)

    late = threading.Timer(1.0, start)
    late.start()
    assert post(service, "/", {}, 30) == "back"
    assert began.is_set()
    late.join()


def test_500_is_final_after_three_tries_and_a_redirect_at_once(url: str) -> None:
    with pytest.raises(Refused, match="answered 500 .* 3 tries"):
        ask(impatient(url), "broken")
    there = Answered(b"", 307, {"Location": f"{url}/chat/completions"})
    with scripted(lambda asked: there) as server, pytest.raises(Refused, match="answered 307"):
        ask(impatient(server.url, secret=SECRET), "right")


def test_an_answer_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mmrl.rewards.http.service.LARGEST", 2**20)
    packed = gzip.compress(b" " * 2**21)  # small until it is unpacked
    answers = Answered(b" " * 2**21), Answered(packed, headers={"Content-Encoding": "gzip"})
    for answer in answers:
        with (
            scripted(lambda _, answer=answer: answer) as server,
            pytest.raises(Refused, match="answered more than 1 MiB"),
        ):
            ask(impatient(server.url), "right")


def test_a_host_that_takes_no_connection_costs_seconds_and_not_a_try(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("mmrl.rewards.http.service.OPEN_SECONDS", 0.3)
    with socket.socket() as deaf, ExitStack() as stack, scripted(lambda _: Answered(b"1")) as well:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen(0)
        for _ in range(3):  # what the kernel keeps for it is full afterwards
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(deaf.getsockname())
        url = f"http://127.0.0.1:{deaf.getsockname()[1]}"
        started = time.monotonic()
        assert post(Service([url, well.url], timeout_s=30), "/", {}, 30) == 1
        assert time.monotonic() - started < 5
