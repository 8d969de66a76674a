"""LLaDA-V's sampler, token for token, from the same random numbers.

The public code works on embeddings, row by row, and never writes the ends of a text, only that of a
turn; what it excludes is what these canvases ban.
"""

import json
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Generator

from mmrl.generation.masked.canvas import MaskedCanvas
from mmrl.models import load_model
from mmrl.samplers import SamplerConfig, sample
from tests.mmrl.samplers.public_samplers import sample_publicly
from tests.models.networks import FIXTURES, bare_policy, write_llada_v

CASES = json.loads((FIXTURES / "llada_v" / "tokens.json").read_text())
BANNED, MASK = (126081, 126080, 126346, 126347), 126336


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    return bare_policy(load_model(write_llada_v(tmp_path_factory.mktemp("llada_v"))))


@pytest.mark.parametrize(
    ("case", "settings"),
    [
        ("T0", {"steps": 8}),
        ("blocks", {"steps": 8, "block_size": 4}),
        ("T1", {"temperature": 1.0}),
        ("cfg", {"cfg_scale": 1.0}),
        ("random", {"target": "random"}),
        ("suffix", {}),
        ("stop", {"steps": 8, "eos": "leave"}),
        ("stop_hit", {"steps": 8, "eos": "leave"}),
        ("stop_hit_blocks", {"steps": 8, "block_size": 4, "eos": "leave"}),
        ("stop_hit_suffix", {"steps": 8, "eos": "leave"}),
    ],
)
def test_static_is_llada_vs_sampler(
    policy: SimpleNamespace, case: str, settings: dict[str, Any]
) -> None:
    suffix = [77, 78] if case.endswith("suffix") else []
    tokens = torch.tensor([[*CASES["prompt"], *[MASK] * 8, *suffix]])
    response = torch.zeros_like(tokens, dtype=torch.bool)
    response[:, 7:15] = True
    end = CASES["stop"].get(case, 126348)
    canvas = MaskedCanvas(
        tokens,
        response,
        None,
        (0, 126464),
        MASK,
        torch.full_like(tokens, MASK),
        None,
        stop_ids=(end,),
        banned=BANNED,
    )
    options = {"name": "static", "temperature": 0.0, "steps": 4} | settings
    done = sample_publicly(policy, canvas, SamplerConfig(**options)).canvas
    row, expected = done.tokens[0, 7:].tolist(), CASES["generate"][case]
    assert row[: len(expected)] == expected
    # the public code returns what stands before the end
    assert row[len(expected) : len(expected) + 1] in ([], [end])


def test_what_is_banned_is_never_written(policy: SimpleNamespace) -> None:
    tokens = torch.tensor([[*CASES["prompt"], *[MASK] * 8]])
    config = SamplerConfig(name="static", steps=8, temperature=0.0)

    def written(banned: tuple[int, ...]) -> set[int]:
        canvas = MaskedCanvas(tokens, tokens == MASK, None, (0, 126464), MASK, banned=banned)
        return set(sample(policy, canvas, config, Generator()).canvas.tokens[0, 7:].tolist())

    usual = written(())
    assert not usual & written(tuple(usual))
