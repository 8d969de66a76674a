"""UniRL's reward service: what is sent, what is believed, what is refused."""

import base64
import io
import json
from typing import Any

import pytest
from PIL import Image

from mmrl.rewards import PartialFailure, build_reward
from mmrl.types import Sample
from tests.rewards.scripted_server import Answered, Asked, Scripted, scripted


def entry(server: Scripted, **changes: Any) -> dict[str, Any]:
    return {"name": "hpsv2", "mode": "client", "protocol": "unirl", "url": server.url, **changes}


def pictures(number: int) -> list[Sample]:
    """Images whose first pixel is their number."""
    images = [Image.new("RGB", (8, 8), (n, 0, 0)) for n in range(number)]
    return [Sample(f"prompt {n}", image, {"n": n}) for n, image in enumerate(images)]


def red(data: str) -> int:
    image = Image.open(io.BytesIO(base64.b64decode(data)))
    assert image.format == "PNG"
    return image.getpixel((0, 0))[0]  # type: ignore[index]


def honest(asked: Asked, **changes: Any) -> Answered:
    """The red of the last turn, in one metric."""
    if asked.path == "/rewards":
        return Answered(json.dumps({"rewards": ["hpsv2"]}).encode())
    assert (asked.method, asked.path) == ("POST", "/score")
    requests = json.loads(asked.body)["requests"]
    assert all(request["required_rewards"] == ["hpsv2"] for request in requests)
    results = [{"hpsv2": {"score": red(r["history"][-1]["image_b64"])}} for r in requests]
    answer = {"results": results, "errors": [{} for _ in requests], **changes}
    return Answered(json.dumps(answer).encode())


def test_pictures_come_as_png_after_those_of_the_prompt_and_scores_in_order() -> None:
    batch = pictures(10)
    source = Image.new("RGB", (8, 8), (77, 0, 0))
    batch[3] = Sample("make it darker", batch[3].completion, {"n": 3}, [source])
    with scripted(honest) as server:
        assert build_reward(entry(server, batch_size=4))(batch) == [float(n) for n in range(10)]
        sent = [each for asked in server.asked for each in json.loads(asked.body)["requests"]]
        sent.sort(key=lambda each: each["metadata"]["n"])
        assert [turn["text"] for turn in sent[3]["history"]] == ["make it darker"] * 2
        assert red(sent[3]["history"][0]["image_b64"]) == 77
        assert [len(each["history"]) for each in sent].count(1) == 9


WRONG: dict[str, dict[str, Any]] = {
    "too few": {"results": [{"hpsv2": {"score": 1}}]},
    "no results": {"results": None},
    "another reward": {"results": [{"clip": {"score": 1}}] * 3},
    "no metric": {"results": [{"hpsv2": {}}] * 3},
    "two metrics": {"results": [{"hpsv2": {"a": 1, "b": 2}}] * 3},
    "null": {"results": [{"hpsv2": {"score": None}}] * 3},
    "a truth": {"results": [{"hpsv2": {"score": True}}] * 3},
    "an error": {"results": [{}] * 3, "errors": [{"hpsv2": "RuntimeError('memory')"}] * 3},
    "too few errors": {"errors": [{"hpsv2": "x"}]},
}


@pytest.mark.parametrize("name", WRONG)
def test_an_answer_that_does_not_fit_gives_no_score(name: str) -> None:
    with scripted(lambda asked: honest(asked, **WRONG[name])) as server:
        with pytest.raises(PartialFailure) as caught:
            build_reward(entry(server))(pictures(3))
        assert all(isinstance(each, Exception) for each in caught.value.results)


def test_one_of_several_metrics_is_chosen_by_name() -> None:
    results = [{"hpsv2": {"a": n, "b": 10 * n}} for n in range(3)]
    with scripted(lambda asked: honest(asked, results=results)) as server:
        assert build_reward(entry(server, metric="b"))(pictures(3)) == [0.0, 10.0, 20.0]
        with pytest.raises(
            PartialFailure, match=r"has the metrics \['a', 'b'\], not 'c'; set metric"
        ):
            build_reward(entry(server, metric="c"))(pictures(3))


def test_one_item_that_failed_fails_alone() -> None:
    errors = [{}, {"hpsv2": "ValueError('image')"}, {}]
    results: list[Any] = [{"hpsv2": {"score": 1.5}}, {}, {"hpsv2": {"score": 2.5}}]
    with scripted(lambda asked: honest(asked, results=results, errors=errors)) as server:
        with pytest.raises(PartialFailure, match=r"ValueError\('image'\)") as caught:
            build_reward(entry(server))(pictures(3))
        assert caught.value.results[::2] == [1.5, 2.5]


def test_alpha_is_put_on_white() -> None:
    clear = Image.new("RGBA", (8, 8), (200, 0, 0, 0))
    with scripted(honest) as server:
        assert build_reward(entry(server))([Sample("p", clear, {})]) == [255.0]


def test_ready_tells_absent_wrong_and_busy_apart() -> None:
    def ready(url: str) -> str:
        entry_ = {"name": "hpsv2", "mode": "client", "protocol": "unirl", "url": url}
        return build_reward(entry_).ready()  # type: ignore[attr-defined]

    with scripted(lambda asked: Answered(b"{}", 503)) as busy:
        assert ready(busy.url) == ""
    with scripted(lambda asked: Answered(b"{}", 404)) as other:
        assert "does not speak this protocol" in ready(other.url)
    assert "is not there" in ready("http://127.0.0.1:9")


def test_texts_are_not_sent_and_health_names_what_is_served() -> None:
    with scripted(honest) as server:
        with pytest.raises(PartialFailure, match="scores images"):
            build_reward(entry(server))([Sample("p", "text")])
        assert not server.asked
        assert build_reward(entry(server)).ready() == ""  # type: ignore[attr-defined]
        other = build_reward(entry(server, name="wise"))
        assert "does not serve wise" in other.ready()  # type: ignore[attr-defined]
