"""Judges under the names of the client."""

from collections.abc import Iterator

import pytest
from PIL import Image

from mmrl.config import ConfigError
from mmrl.rewards import build_reward
from mmrl.rewards.judge import JudgeReward
from mmrl.types import Sample
from tests.rewards.judge_server import judge_server


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with judge_server() as address:
        yield address


def test_the_judge_scores_alike_under_both_names(url: str) -> None:
    batch = [Sample(f"prompt {n}", "a" * n) for n in range(6)]
    here = build_reward({"name": "judge", "model": "right", "urls": [url]})
    entry = {"mode": "client", "protocol": "openai", "url": url}
    assert build_reward({"name": "right", **entry})(batch) == here(batch)
    named = build_reward(
        {"name": "judge", "model": "unified", "template": "unified_reward", **entry}
    )
    pictures = [Sample("p", Image.new("RGB", (8, 8)))]
    assert named(pictures) == [3.0] and isinstance(named, JudgeReward)
    assert build_reward({"name": "right", **entry}).ready() == ""  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"urls": ["http://h/v1"]}, "with mode: client it is url"),
        ({"api_key_env": "KEY"}, "with mode: client it is token_env"),
        ({"backend": "transformers"}, "backend is 'transformers'"),
        ({"name": "Qwen/Qwen3-VL"}, "without a slash"),
        ({"name": "judge"}, "model has no value"),
        ({"url": []}, "one address or several"),
        ({"token_env": "NO_SUCH_VARIABLE"}, "Export it"),
    ],
)
def test_what_belongs_to_the_other_form_is_refused(changes: dict, said: str) -> None:
    entry = {"name": "right", "mode": "client", "protocol": "openai", "url": "http://127.0.0.1:9"}
    with pytest.raises(ConfigError, match=said):
        build_reward({**entry, **changes})
