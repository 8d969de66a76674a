"""The client reward and the server of this project together: the scores of the reward itself."""

import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from PIL import Image

from mmrl.rewards import PartialFailure, Reward, build_reward
from mmrl.types import Sample
from tests.rewards.rounding import up_to_rounding
from tests.rewards.server.live import Live, live

CLIP = {"name": "clip", "model": "datasets/shapes/checkpoints/clip", "device": "cpu"}
CIRCLE = {"tag": "single_object", "include": [{"class": "circle", "count": 1}]}
REWARDS = (
    "rewards=[{name: shapes}, {name: math}, {name: moody}, {name: clip, max_latency_ms: 10,"
    " device: cpu, model: datasets/shapes/checkpoints/clip}, {name: clip, key: caption,"
    " image: prompt, device: cpu, model: datasets/shapes/checkpoints/clip}]"
)
TOKEN = "a-token-of-this-test"
MODES = ("RGB", "RGBA", "L", "LA", "P", "1", "CMYK", "F", "I")


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Live, Live]]:
    """Two servers of the same rewards that want a token and take few items at a time."""
    words = (REWARDS, "token_env=TOKEN", "limits.max_items=5")
    folders = [tmp_path_factory.mktemp(name) for name in ("one", "two")]
    with live(folders[0], *words, token=TOKEN) as one, live(folders[1], *words, token=TOKEN) as two:
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


def pictures(number: int, seed: int = 0) -> list[Sample]:
    """Noise of several sizes and modes."""
    draw, found = np.random.default_rng(seed), []
    for n in range(number):
        size = (*draw.integers(20, 90, 2), 3)
        image = Image.fromarray(draw.integers(0, 256, size, dtype=np.uint8))
        found.append(Sample(f"a red circle {n % 3}", image.convert(MODES[n % len(MODES)]), CIRCLE))
    return found


def test_scores_are_those_of_the_reward_called_here(served: Any) -> None:
    batch, here = pictures(3 * len(MODES)), build_reward(CLIP)
    expected = here(batch)
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
    assert "it serves shapes, math, moody, clip, caption, and not hps" in served("hps").ready()
    with pytest.raises(PartialFailure, match="404.*unknown_reward"):
        served("hps")(pictures(1))
    assert all(served("clip")(pictures(1))), "waits until it is loaded"
    assert served("clip").ready() == ""
    monkeypatch.setenv("MMRL_REWARD_TOKEN", "another")
    with pytest.raises(PartialFailure, match="401.*unauthorized"):
        served("clip")(pictures(1))
