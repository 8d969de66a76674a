"""UniRL's reward service: what is sent, what is believed, what is refused."""

import base64
import io
import json
from typing import Any

import av
import numpy as np
import pytest
from PIL import Image

from mmrl.config import ConfigError
from mmrl.rewards import PartialFailure, build_reward
from mmrl.rewards.scoring.scorer import Scorer
from mmrl.types import Sample, Video
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
        with pytest.raises(PartialFailure, match=r"metrics \['a', 'b'\], not 'c'; set metric"):
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
        return build_reward(entry(Scripted(url))).ready()  # type: ignore[attr-defined]

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


HEADS = {"VQ": (3.6757, 2.2476), "MQ": (1.1646, 1.3811), "TA": (2.8105, 2.5121)}
"""Published means and deviations of VideoAlign's heads, by which its service scales them."""


def films(number: int) -> list[Sample]:
    """Videos of noise, with a red of their own, which their prompts name."""
    noise = np.random.default_rng(0).integers(0, 256, (number, 5, 7, 9, 3), np.uint8)
    noise[..., 0] = 10 * np.arange(number)[:, None, None, None]
    return [Sample(str(10 * n), Video(frames, 8)) for n, frames in enumerate(noise)]


def videoalign(asked: Asked) -> Answered:
    """Heads that say how bright and quick a video is and how far from what its prompt asks for."""
    results = []
    for request in json.loads(asked.body)["requests"]:
        [turn] = request["history"]
        with av.open(io.BytesIO(base64.b64decode(turn["video_b64"]))) as clip:
            rate = clip.streams.video[0].average_rate
            seen = np.stack([each.to_ndarray(format="rgb24") for each in clip.decode(video=0)])
        raw = {"VQ": seen.mean(), "MQ": float(rate or 0) * len(seen)}
        raw["TA"] = -abs(float(turn["text"]) - seen[..., 0].mean())
        heads = {key: (raw[key] - mean) / std for key, (mean, std) in HEADS.items()}
        results.append({"videoalign": {"Overall": sum(heads.values()), **heads}})
    return Answered(json.dumps({"results": results, "errors": [{} for _ in results]}).encode())


def test_videoalign_scores_each_prompt_against_its_own_video_as_it_was_written() -> None:
    batch = films(10)
    vq = [(s.completion.frames.mean() - 3.6757) / 2.2476 for s in batch]  # type: ignore[union-attr]
    rest = (8 * 5 - 1.1646) / 1.3811, (0 - 2.8105) / 2.5121
    with scripted(videoalign) as server:
        said = entry(server, name="videoalign", video=True, batch_size=4)
        assert build_reward({**said, "metric": "TA"})(batch) == pytest.approx([rest[1]] * 10)
        overall = build_reward({**said, "metric": "Overall"})(batch)
        assert overall == pytest.approx([one + sum(rest) for one in vq])
        danced = [{**said, "key": metric, "metric": metric} for metric in ("VQ", "MQ")]
        assert Scorer(danced).score(batch).total == pytest.approx([one + rest[0] for one in vq])


def test_a_clip_that_is_missing_or_too_large_fails_alone_and_kinds_are_told_before() -> None:
    batch = films(3)
    batch[1] = Sample("10", Video(np.zeros((0, 7, 9, 3), np.uint8)))
    noise = np.random.default_rng(1).integers(0, 256, (40, 64, 64, 3), np.uint8)
    batch[2].completion = Video(noise)
    with scripted(videoalign) as server:
        said = entry(server, name="videoalign", video=True, metric="VQ")
        with pytest.raises(PartialFailure) as caught:
            build_reward({**said, "max_clip_mb": 0.1})(batch)
        right, missing, large = caught.value.results
        assert isinstance(right, float) and "a video without frames" in str(missing)
        assert "40 frames, and videoalign.max_clip_mb is 0.1; raise that" in str(large)
        Scorer([said]).check([], "videos")
        with pytest.raises(ConfigError, match="frames .* is None; .*client .* sets video: true"):
            Scorer([entry(server)]).check([], "videos")
