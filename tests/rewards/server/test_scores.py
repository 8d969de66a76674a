"""Served scores are the scores of the reward called here, whoever else asks at the same time."""

import random
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from PIL import Image

from mmrl.rewards import Reward, build_reward
from mmrl.rewards.server.reward_worker import score_samples
from mmrl.rewards.server.wire import Problem
from mmrl.types import Sample
from tests.rewards.server.live import Live, live, picture, words

CLIP = {"name": "clip", "model": "datasets/shapes/checkpoints/clip", "device": "cpu"}
PROMPTS = ("a red circle", "two blue squares", "a green ring left of a cyan star")
REWARDS = (
    "{name: shapes}, {name: shapes, key: partial, mode: partial}, {name: math},"
    " {name: moody, max_latency_ms: 30}, {name: clip, max_latency_ms: 30, device: cpu,"
    " model: datasets/shapes/checkpoints/clip}"
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """Real rewards and a moody one, without a token, with the limits it has by default."""
    with live(tmp_path_factory.mktemp("server"), f"rewards=[{REWARDS}]") as started:
        started.loaded()
        yield started


@pytest.fixture(scope="module")
def clip() -> Reward:
    return build_reward(CLIP)


def samples(number: int, seed: int = 0) -> list[Sample]:
    """Noise of several sizes."""
    random = np.random.default_rng(seed)
    shapes = [tuple(random.integers(20, 90, 2)) for _ in range(number)]
    images = [Image.fromarray(random.integers(0, 256, (*s, 3), dtype=np.uint8)) for s in shapes]
    return [Sample(PROMPTS[n % 3], image) for n, image in enumerate(images)]


def items(batch: Sequence[Sample], first: int = 0) -> list[dict[str, Any]]:
    return [picture(f"i{first + n}", s.prompt, s.completion) for n, s in enumerate(batch)]  # type: ignore[arg-type]


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


def test_sixteen_clients_get_each_their_own_scores(server: Live, clip: Reward) -> None:
    batch = samples(320)
    expected = dict(zip((f"i{n}" for n in range(320)), clip(batch), strict=True))
    sizes, starts = random.Random(0), [0]
    while starts[-1] < 320:
        starts.append(min(starts[-1] + sizes.randint(1, 7), 320))
    requests = [items(batch[a:b], a) for a, b in zip(starts, starts[1:], strict=False)]
    with ThreadPoolExecutor(16) as clients:
        found = list(
            clients.map(lambda n: server.score("clip", requests[n], f"{n}"), range(len(requests)))
        )
    answered = [item for answer in found for item in answer]
    # batches of other sizes: up to the rounding of float32
    assert {item["id"]: item["score"] for item in answered} == pytest.approx(expected, abs=1e-5)
    assert len(answered) == len(expected)


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
    image = samples(1)[0].completion
    right = picture("a", "p", image)  # type: ignore[arg-type]
    both = {**right, "id": "b", "completion": "text"}
    neither = {"id": "c", "prompt": "p"}
    two = {**right, "id": "d", "images": right["images"] * 2}
    reference = {**right, "id": "e", "reference_images": right["images"]}
    found = server.score("clip", [right, both, neither, two, reference, words("f")])
    codes = [item["error"] and item["error"]["code"] for item in found]
    assert codes == [None, "bad_item", "bad_item", "bad_item", None, "wrong_input"]
    assert server.score("clip", [], "nothing") == []


def test_words_that_no_answer_can_hold_do_not_cost_the_others_theirs() -> None:
    def reward(samples: list[Sample]) -> list[float | None]:
        raise OSError(f"no file {samples[0].prompt}\udcff")

    found = score_samples(reward, [Sample("p", "")])
    assert isinstance(found[0], Problem) and "no file p?" in found[0].message
    found[0].message.encode()


def test_health_describes_what_is_served(server: Live) -> None:
    status, health = server.get("/v1/health")
    assert status == 200 and health["status"] == "ok"
    clip = next(reward for reward in health["rewards"] if reward["name"] == "clip")
    assert clip["device"] == "cpu" and clip["needs"] == ["prompt", "images"] and clip["scale"]
    versions = {reward["name"]: reward["version"] for reward in health["rewards"]}
    assert len(set(versions.values())) == len(versions) == 5
    answer = server.post({"id": "v", "reward": "partial", "items": []})[1]
    assert answer["version"] == versions["partial"]
