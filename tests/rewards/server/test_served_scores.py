"""The server of this project and its client: the scores of the reward itself."""

import base64
import random
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from PIL import Image

from mmrl.rewards import PartialFailure, Reward, build_reward
from mmrl.rewards.server.reward_worker import score_samples
from mmrl.rewards.server.wire import Problem
from mmrl.types import Sample, Video
from tests.rewards.rounding import up_to_rounding
from tests.rewards.server.live import Live, live, picture, words

CLIP = {"name": "clip", "model": "datasets/shapes/checkpoints/clip", "device": "cpu"}
CIRCLE = {"tag": "single_object", "include": [{"class": "circle", "count": 1}]}
REWARDS = (
    "rewards=[{name: shapes}, {name: math}, {name: moody}, {name: temporal},"
    " {name: clip, max_latency_ms: 10, device: cpu, model: datasets/shapes/checkpoints/clip},"
    " {name: clip, key: caption, image: prompt, device: cpu,"
    " model: datasets/shapes/checkpoints/clip}]"
)
TOKEN = "a-token-of-this-test"
MODES = ("RGB", "RGBA", "L", "LA", "P", "1", "CMYK", "F", "I")


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Live, Live]]:
    """Two servers of the same rewards that want a token and take few items at a time."""
    options = (REWARDS, "token_env=TOKEN", "limits.max_items=5", "limits.max_frames=30")
    folders = [tmp_path_factory.mktemp(name) for name in ("one", "two")]
    with (
        live(folders[0], *options, token=TOKEN) as one,
        live(folders[1], *options, token=TOKEN) as two,
    ):
        yield one, two


@pytest.fixture
def served(pair: tuple[Live, Live], monkeypatch: pytest.MonkeyPatch) -> Any:
    """Builds a reward of both servers; the first calls find them loading."""
    monkeypatch.setenv("MMRL_REWARD_TOKEN", TOKEN)
    urls = [f"http://127.0.0.1:{server.port}" for server in pair]

    def build(name: str, **options: Any) -> Reward:
        entry = {"name": name, "mode": "client", "url": urls, "token_env": "MMRL_REWARD_TOKEN"}
        return build_reward({**entry, **options})

    return build


@pytest.fixture
def server(pair: tuple[Live, Live]) -> Live:
    pair[0].loaded()
    return pair[0]


def pictures(number: int, seed: int = 0) -> list[Sample]:
    """Noise of several sizes and modes."""
    draw, found = np.random.default_rng(seed), []
    for n in range(number):
        size = (*draw.integers(20, 90, 2), 3)
        image = Image.fromarray(draw.integers(0, 256, size, dtype=np.uint8))
        found.append(Sample(f"a red circle {n % 3}", image.convert(MODES[n % len(MODES)]), CIRCLE))
    return found


def test_scores_are_those_of_the_reward_called_here(served: Any) -> None:
    batch = pictures(3 * len(MODES))
    expected: Any = build_reward(CLIP)(batch)
    assert served("clip", batch_size=4)(batch) == up_to_rounding(expected)
    halved = served("clip", batch_size=64)(batch[:12])
    assert halved == up_to_rounding(expected[:12]), "five at most"
    assert served("shapes")(batch) == build_reward({"name": "shapes"})(batch)


def test_captions_are_scored_with_the_images_of_prompts_that_travel(served: Any) -> None:
    shown = [sample.completion for sample in pictures(3)]
    batch = [Sample("describe", f"a red circle {n}", images=[shown[n]]) for n in range(3)]  # type: ignore[list-item]
    batch.append(Sample("what?", "4", {"answer": "4"}))
    here: Any = build_reward({**CLIP, "image": "prompt"})(batch)
    found = served("caption")(batch)
    assert found[:3] == up_to_rounding(here[:3]) and found[3] is here[3] is None


def test_many_clients_lose_and_swap_no_score(served: Any) -> None:
    draw = random.Random(0)
    values = [draw.uniform(-1, 1) for _ in range(800)]
    batch = [Sample("p", "", {"score": value}) for value in values]
    with ThreadPoolExecutor(16) as clients:
        parts = [batch[start : start + 50] for start in range(0, 800, 50)]
        work = [clients.submit(served("moody", batch_size=5), part) for part in parts]
        found = [score for each in work for score in each.result()]
    assert found == values


def test_a_wrong_token_and_a_reward_that_is_not_served_are_told_at_once(
    served: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "it does not serve hps: " in served("hps").ready()
    with pytest.raises(PartialFailure, match="404.*unknown_reward"):
        served("hps")(pictures(1))
    assert all(served("clip")(pictures(1))), "waits until it is loaded"
    assert served("clip").ready() == ""
    monkeypatch.setenv("MMRL_REWARD_TOKEN", "another")
    with pytest.raises(PartialFailure, match="401.*unauthorized"):
        served("clip")(pictures(1))


def scores(answer: Sequence[Any]) -> list[float]:
    assert all(item["error"] is None and item["components"] == {} for item in answer), answer
    return [item["score"] for item in answer]


def test_text_rewards_score_as_they_do_here(server: Live) -> None:
    texts = ("so it is \\boxed{12}", "<answer>a dozen</answer>", "no idea", "1e999", "\x00 ü 試")
    expected = build_reward({"name": "math"})([Sample("p", t, {"answer": "12"}) for t in texts])
    asked = [words(f"i{n}", text, answer="12") for n, text in enumerate(texts)]
    assert scores(server.score("math", asked)) == expected
    none, bad = server.score("math", [words("none"), words("bad", answer="")], "others")
    assert none == {"id": "none", "score": None, "components": {}, "error": None}
    assert bad["error"]["code"] == "bad_metadata"


@pytest.mark.parametrize(
    ("mood", "code"),
    [("raise", "reward_failed"), ("exit", "reward_failed"), ("nan", "no_score")]
    + [("word", "no_score"), ("lose the network", "unreachable")],
)
def test_a_failing_item_fails_by_name_and_the_others_are_scored(
    server: Live, mood: str, code: str
) -> None:
    first, bad, last = server.score(
        "moody", [words("a", score=1), words("b", do=mood), words("c", score=2.5)], mood
    )
    assert (bad["score"], bad["error"]["code"]) == (None, code)
    if code != "unreachable":  # a network that is down is down for all of them
        assert scores([first, last]) == [1.0, 2.5]
    logged = [line for line in server.log.read_text().splitlines() if f"of request {mood}," in line]
    assert "item failed: b of" in logged[-1 if code != "unreachable" else 1] and code in logged[-1]


def test_wrong_kinds_of_completions_fail_alone(server: Live) -> None:
    image = Image.new("RGB", (30, 20))
    right = picture("a", "p", image)
    both = {**right, "id": "b", "completion": "text"}
    neither = {"id": "c", "prompt": "p"}
    two = {**right, "id": "d", "images": right["images"] * 2}
    reference = {**right, "id": "e", "reference_images": right["images"]}
    found = server.score("clip", [both, neither, two, reference, words("f")])
    codes = [item["error"] and item["error"]["code"] for item in found]
    assert codes == ["bad_item", "bad_item", "bad_item", None, "wrong_input"]
    assert server.score("clip", [], "nothing") == []


def test_videos_travel_unchanged_and_a_bad_clip_fails_alone(served: Any, server: Live) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (3, 9, 7, 3), np.uint8)
    batch = [Sample("p", Video(noise[place], 23.976)) for place in ([0, 1, 1, 2], [0] * 5, [2])]
    assert served("temporal", video=True)(batch) == build_reward("temporal")(batch)
    files = [Video(noise[place]).file() for place in ([0, 1], [0] * 30, [0] * 31)]
    sent = [b"", files[0][:-1], *files]
    clips = [{"mime": "image/webp", "data": base64.b64encode(each).decode()} for each in sent]
    items = [{"id": f"{n}", "prompt": "p", "video": clip} for n, clip in enumerate(clips)]
    found = server.score("temporal", items)
    codes = [item["error"] and item["error"]["code"] for item in found]
    assert codes == ["decode_failed", "decode_failed", None, None, "too_many_frames"]
    both = {**items[2], "completion": "text"}
    for reward, item, code in (("temporal", both, "bad_item"), ("clip", items[2], "wrong_input")):
        assert server.score(reward, [item], f"{code}")[0]["error"]["code"] == code


def test_words_that_no_answer_can_hold_do_not_cost_the_others_theirs() -> None:
    def reward(samples: list[Sample]) -> list[float | None]:
        raise OSError(f"no file {samples[0].prompt}\udcff")

    found = score_samples(reward, [Sample("p", "")])
    assert isinstance(found[0], Problem) and "no file p?" in found[0].message
    found[0].message.encode()


def test_a_reward_that_names_the_samples_it_cannot_score_is_called_once() -> None:
    calls = []

    def reward(samples: list[Sample]) -> list[float | None]:
        calls.append(len(samples))
        raise PartialFailure([1.0, ValueError("no tests"), None])

    found = score_samples(reward, [Sample("p", "")] * 3)
    assert found == [1.0, Problem("reward_failed", "ValueError: no tests"), None]
    assert calls == [3]


def test_health_describes_what_is_served(server: Live) -> None:
    status, health = server.get("/v1/health")
    assert status == 200 and health["status"] == "ok"
    versions = {reward["name"]: reward["version"] for reward in health["rewards"]}
    assert len(set(versions.values())) == len(versions) == 6
    answer = server.post({"id": "v", "reward": "caption", "items": []})[1]
    assert answer["version"] == versions["caption"]
