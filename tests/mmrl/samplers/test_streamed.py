"""Drawing from some logits at a time writes the canvases that all logits at once write."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from mmrl.generation.masked.canvas import MaskedCanvas
from mmrl.generation.masked.samplers import streamed
from mmrl.runtime import logits_budget
from mmrl.samplers import SamplerConfig, sample
from mmrl.types import Rollout
from tests.mmrl.canvases import VOCAB, generators, small_canvas
from tests.models.networks import bare_policy, small_network

POLICY = bare_policy(small_network(3).double())
ROWS, SIZE = 3, 5
CASES: dict[str, dict[str, Any]] = {
    "greedy": {"name": "static", "temperature": 0.0},
    "drawn": {"name": "static", "temperature": 0.7},
    "guided": {"name": "emerge", "cfg_scale": 2.0},
    "two guidances": {"name": "maskgit", "cfg_scale": 2.0, "image_guidance_scale": 0.5},
    "dynamic": {"name": "dynamic", "threshold": 0.1, "temperature": 1.3},
    "filtered": {"name": "static", "temperature": 0.7, "filtered_confidence": True},
    "chance": {"name": "static", "target": "random"},
    "margin": {"name": "static", "temperature": 0.0, "target": "margin"},
    "alg_temp": {"name": "topk_margin", "alg_temp": 0.5},
    "origin": {"name": "origin"},
    "lumina": {"name": "lumina"},
    "dream": {"name": "entropy", "temperature": 0.5},
    "top_k": {"name": "static", "top_k": 3},
    "top_p": {"name": "left_to_right", "top_p": 0.6},
    "end last": {"name": "static", "temperature": 0.0, "eos": "last"},
    "no end": {"name": "static", "temperature": 0.0, "eos": "suppress"},
    "prefix": {"name": "static", "cache": "prefix", "block_size": 3},
    "dual": {"name": "static", "temperature": 0.0, "cache": "dual", "block_size": 3},
}


def stream_always(monkeypatch: pytest.MonkeyPatch, large: int) -> list[int]:
    """Let every step stream, few rows and columns at a time; returns the rows of each part."""
    monkeypatch.setattr(logits_budget, "LOGITS_BUDGET", ROWS * (VOCAB[1] - VOCAB[0]) * 8)
    monkeypatch.setattr(streamed, "LARGE_VOCABULARY", large)
    monkeypatch.setattr(streamed, "PANEL_COLUMNS", SIZE)
    monkeypatch.setattr(streamed.Stream, "needed", lambda self, rows: True)
    seen: list[int] = []
    for name in ("_rows", "_panels"):
        build = getattr(streamed.Stream, name)

        def counted(self: Any, x: Any, *rest: Any, build: Any = build) -> Any:
            seen.append(x.shape[1])
            return build(self, x, *rest)

        monkeypatch.setattr(streamed.Stream, name, counted)
    return seen


def canvas() -> MaskedCanvas:
    made = small_canvas(4, image=True)
    # never written: a whole panel, and the last column
    banned = tuple(range(VOCAB[0] + SIZE, VOCAB[0] + 2 * SIZE)) + (VOCAB[1] - 1,)
    return replace(made, stop_ids=(VOCAB[0] + 2, VOCAB[0] + 3), banned=banned)


def written(options: dict[str, Any]) -> Rollout:
    return sample(POLICY, canvas(), SamplerConfig(steps=6, **options), generators(4))


@pytest.mark.parametrize("large", [0, 10**9], ids=["panels", "rows"])
@pytest.mark.parametrize("case", CASES)
def test_a_stream_writes_the_same_canvases(
    case: str, large: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = written(CASES[case])
    seen = stream_always(monkeypatch, large)
    found = written(CASES[case])
    assert torch.equal(found.canvas.tokens, expected.canvas.tokens)
    assert torch.equal(found.trace, expected.trace)
    torch.testing.assert_close(found.logprobs, expected.logprobs)
    assert seen and max(seen) <= ROWS


def test_small_vocabularies_do_not_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streamed.Stream, "__call__", None)
    written(CASES["drawn"])


@pytest.mark.parametrize("cache", ["prefix", "dual"])
def test_the_first_pass_computes_equal_rows_once_with_a_cache(cache: Any) -> None:
    """Rows of a group are one row until the first token is written; the cache then has all."""
    group = canvas()[torch.zeros(4, dtype=torch.long)]
    rows: list[int] = []

    def count(**inputs: Any) -> Any:
        rows.append(len(inputs["input_ids"]))
        return POLICY.model(**inputs)

    counted = SimpleNamespace(**{**vars(POLICY), "model": count})
    config = SamplerConfig(name="static", steps=6, block_size=3, cache=cache, window=1)
    together = sample(counted, group, config, generators(4))
    assert rows[:2] == [1, 4]
    for row in range(4):
        alone = sample(POLICY, group[row : row + 1], config, generators(4)[row : row + 1])
        assert torch.equal(alone.canvas.tokens[0], together.canvas.tokens[row])
