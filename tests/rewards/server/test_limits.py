"""Whatever is beyond a limit is refused by name, before it costs much, and the server lives on."""

import http.client
import json
import socket
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tests.rewards.server.live import Live, live, picture, words

SMALL = {"max_items": 4, "max_bytes": 40_000, "max_pixels": 4096, "max_memory_mb": 4}
SMALL |= {"max_waiting": 6, "body_seconds": 0.5}


@pytest.fixture(scope="module")
def small_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """One with small limits, a token, and items that time out after two seconds."""
    limits = [f"limits.{key}={value}" for key, value in SMALL.items()]
    arguments = ["rewards=[{name: moody}, {name: shapes}]", *limits, "token_env=TOKEN"]
    arguments += ["timeout_s=2"]
    folder, token = tmp_path_factory.mktemp("small"), "a-token-of-tests"
    with live(folder, *arguments, token=token) as started:
        started.loaded()
        yield started


@pytest.fixture(autouse=True)
def still_alive(small_server: Live) -> Iterator[None]:
    yield
    answer = small_server.score("moody", [words("a", score=1)], f"alive {time.monotonic()}")
    assert answer[0]["score"] == 1.0
    assert small_server.get("/v1/health")[1]["held_bytes"] == 0


def code(server: Live, content: Any, **headers: str) -> tuple[int, str]:
    body = content if isinstance(content, bytes) else json.dumps(content)
    status, _, answer = server.send("POST", "/v1/score", body, headers)
    return status, json.loads(answer)["error"]["code"]


def request(*items: Any, **changes: Any) -> dict[str, Any]:
    return {"id": "r", "reward": "moody", "items": list(items), **changes}


def test_a_body_that_says_it_is_too_long_is_refused_before_it_is_sent(small_server: Live) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", small_server.port, timeout=10)
    connection.putrequest("POST", "/v1/score")
    for header in small_server.headers().items():
        connection.putheader(*header)
    connection.putheader("Content-Length", str(10**12))
    connection.endheaders()
    response = connection.getresponse()
    assert response.status == 413
    assert json.load(response)["error"]["code"] == "too_many_bytes"
    connection.close()


def test_a_body_that_does_not_come_is_not_waited_for(small_server: Live) -> None:
    with socket.create_connection(("127.0.0.1", small_server.port), timeout=10) as slow:
        lines = ["POST /v1/score HTTP/1.1", "Host: x", "Content-Length: 100"]
        lines += [f"{key}: {value}" for key, value in small_server.headers().items()]
        slow.sendall("\r\n".join([*lines, "", "{"]).encode())
        assert b" 408 " in slow.recv(4096)


def test_items_pixels_depth_and_words_are_limited(small_server: Live) -> None:
    items = [words(f"{n}") for n in range(SMALL["max_items"] + 1)]
    assert code(small_server, request(*items)) == (413, "too_many_items")
    deep: Any = 1
    for _ in range(40):
        deep = [deep]
    assert code(small_server, request(words("a", deep=deep))) == (422, "invalid_request")
    assert code(small_server, b"[" * 20_000) == (400, "bad_json")
    assert code(small_server, request(words("a" * 200))) == (422, "invalid_request")
    images = [Image.new("RGB", (65, 64)), Image.new("RGB", (64, 64))]
    found = small_server.score("moody", [picture(f"{n}", "p", i) for n, i in enumerate(images)])
    assert [item["error"] and item["error"]["code"] for item in found] == ["too_many_pixels", None]


def test_every_refusal_has_one_form(small_server: Live) -> None:
    ask = small_server.send
    for status, name, (found, _, body) in (
        (411, "no_length", ask("POST", "/v1/score", iter([b" " * 10_000] * 100))),
        (415, "not_json", ask("POST", "/v1/score", "{}", {"Content-Type": "text/plain"})),
        (404, "not_found", ask("GET", "/etc/passwd")),
        (405, "method_not_allowed", ask("GET", "/v1/score")),
    ):
        assert (found, json.loads(body)["error"]["code"]) == (status, name)


def test_more_requests_than_memory_or_places_are_told_when_to_come_again(
    small_server: Live,
) -> None:
    def one(n: int) -> tuple[int, str | None, str]:
        waiting = request(words("a", score=1, seconds=0.5), id=f"memory {n}")
        status, headers, body = small_server.send("POST", "/v1/score", json.dumps(waiting))
        return status, headers.get("retry-after"), json.loads(body).get("error", {}).get("code", "")

    with ThreadPoolExecutor(12) as clients:
        found = Counter(clients.map(one, range(12)))
    assert set(found) == {(200, None, ""), (429, "1", "busy")}
    assert found[(200, None, "")] >= 2, "several fit into four mebibytes"


def test_items_without_a_score_in_time_are_an_error_by_name(small_server: Live) -> None:
    slow = small_server.score("moody", [words("a", seconds=3, score=1)], "slow")
    assert slow[0]["score"] is None and slow[0]["error"]["code"] == "timeout"
    assert small_server.score("shapes", [words("b")], "other")[0]["error"]["code"] == "wrong_input"
    time.sleep(1.2)  # the reward sleeps on, and is no help to anybody until it wakes


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"", (400, "bad_json")),
        (b"{", (400, "bad_json")),
        (b"\xff\xfe", (400, "bad_json")),
        (b"[]", (422, "invalid_request")),
        (request(words("a"), words("a")), (422, "repeated_id")),
        (request(words("a"), extra=1), (422, "invalid_request")),
        (request(words("a"), items={"a": 1}), (422, "invalid_request")),
        (request({"id": 1, "prompt": "p"}), (422, "invalid_request")),
        (request({"id": "a"}), (422, "invalid_request")),
        (request({"id": "a", "prompt": "p", "metadta": {}}), (422, "invalid_request")),
        (
            json.dumps(request(words("a", x="!"))).replace('"!"', "1e999").encode(),
            (422, "invalid_request"),
        ),
        (request(words("a"), reward="../../etc/passwd"), (404, "unknown_reward")),
        (
            request({**words("a"), "images": [{"mime": "image/jpeg", "data": ""}]}),
            (422, "invalid_request"),
        ),
    ],
)
def test_what_is_no_request_is_refused_by_name(
    small_server: Live, body: Any, expected: tuple[int, str]
) -> None:
    assert code(small_server, body) == expected


@pytest.mark.parametrize("given", ["", "Bearer", "Bearer ", "Bearer wrong", "a-token-of-tests"])
@pytest.mark.parametrize("path", ["/v1/score", "/nowhere"])
def test_nothing_but_health_is_told_without_the_token(
    small_server: Live, given: str, path: str
) -> None:
    method = "POST" if path == "/v1/score" else "GET"
    status, headers, body = small_server.send(method, path, "{}", {"Authorization": given})
    assert (status, json.loads(body)["error"]["code"]) == (401, "unauthorized")
    assert headers["www-authenticate"] == "Bearer"
    assert small_server.send("GET", "/v1/health", headers={"Authorization": given})[0] == 200


def test_the_log_holds_neither_pictures_nor_the_token(small_server: Live) -> None:
    image = picture("a", "p", Image.linear_gradient("L").resize((60, 60)))
    damaged = {**image, "id": "b", "images": [{**image["images"][0], "data": "AAAA" * 1000}]}
    small_server.score("moody", [image, damaged])
    small_server.send("POST", "/v1/score", json.dumps(request(image, items=[[image]])))
    text = small_server.log.read_text()
    assert image["images"][0]["data"][:40] not in text and "AAAAAAAA" not in text
    assert "a-token-of-tests" not in text
    assert '"POST /v1/score HTTP/1.1" 200' in text


def test_idle_connections_hold_up_no_request_and_too_many_are_refused(tmp_path: Path) -> None:
    with (
        live(tmp_path, "rewards=[{name: moody}]", "limits.max_connections=200") as server,
        ExitStack() as stack,
    ):
        server.loaded()
        address = ("127.0.0.1", server.port)
        for _ in range(180):
            stack.enter_context(socket.create_connection(address))
        assert server.score("moody", [words("a", score=1)], "in a crowd")[0]["score"] == 1.0
        with ExitStack() as more:
            for _ in range(30):
                more.enter_context(socket.create_connection(address))
            assert server.send("GET", "/v1/health")[0] == 503
        while server.send("GET", "/v1/health")[0] == 503:
            time.sleep(0.05)


def test_no_request_makes_the_server_open_a_file(small_server: Live, tmp_path: Path) -> None:
    image = picture("a", "p", Image.new("RGB", (8, 8)))
    small_server.score("moody", [image, words("warm")], "warm")  # what is imported once
    before, path = len(small_server.touched()), str(tmp_path / "canary")
    (tmp_path / "canary").write_text("nobody may open this")
    named = {"id": "b", "prompt": path, "images": [{"mime": "image/png", "data": path}]}
    small_server.score("moody", [words("a", path, image=path, video_path=path), named], "paths")
    small_server.post(request(words("a"), reward=path))
    assert small_server.touched()[before:] == []
