"""The public text samplers, token for token, from the same random numbers.

LLaDA's own sampler, MMaDA's for understanding, Fast-dLLM's three and the two of MaskGRPO's trainer,
on networks of random weights. The public vocabulary counts image codes and the mask token among the
text, so these canvases allow them too. Steps that the public code rounds down are given rounded.
"""

import json
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Generator

from mmrl.config import merge
from mmrl.generation.masked.canvas import MaskedCanvas
from mmrl.models import load_model
from mmrl.samplers import SamplerConfig, sample
from mmrl.types import Rollout
from tests.mmrl.samplers.public_samplers import sample_publicly
from tests.models.networks import FIXTURES, bare_policy, drawn_network, write_llada_v

CASES = json.loads((FIXTURES / "text_samplers" / "tokens.json").read_text())
EOS, EOT, MASK = 126081, 126348, 126336
GREEDY = {"name": "static", "temperature": 0.0, "block_size": 8, "steps": 8}


@pytest.fixture(scope="module")
def llada() -> SimpleNamespace:
    """As the public run had it: with the ends of a text made likely."""
    network = drawn_network("llada_generate")
    with torch.no_grad():
        network.head.weight[EOS] *= 4
        network.head.weight[EOT] *= 3
    return bare_policy(network)


@pytest.fixture(scope="module")
def maskgrpo() -> SimpleNamespace:
    """MMaDA's weights, which MaskGRPO's trainer was run with as well."""
    return bare_policy(drawn_network("mmada_maskgrpo"))


@pytest.fixture(scope="module")
def fast_dllm() -> SimpleNamespace:
    return bare_policy(drawn_network("llada_cached"))


def written(
    policy: SimpleNamespace,
    canvas: MaskedCanvas,
    settings: dict[str, Any],
    dtype: torch.dtype = torch.float64,
) -> Rollout:
    return sample_publicly(policy, canvas, merge(SamplerConfig, settings), dtype=dtype)


def text_canvas(
    prompt: list[list[int]], rows: int, mask_id: int, attend: list[list[int]] | None = None
) -> MaskedCanvas:
    """Prompts with 16 masks behind them; the branch has masks in place of the prompt."""
    given = torch.tensor(prompt)
    tokens = torch.cat((given, torch.full((len(given), 16), mask_id)), 1)
    keep = None
    if attend is not None:
        keep = torch.cat((torch.tensor(attend).bool(), torch.ones(len(given), 16).bool()), 1)
    response = torch.arange(tokens.shape[1]).expand_as(tokens) >= given.shape[1]
    other = torch.full_like(tokens, mask_id)
    ends = (EOS, EOT) if rows > EOT else ()
    return MaskedCanvas(tokens, response, keep, (0, rows), mask_id, other, keep, stop_ids=ends)


def tokens(done: Rollout) -> list[list[int]]:
    return done.canvas.tokens[done.canvas.response].view(len(done), -1).tolist()


@pytest.mark.parametrize(
    ("case", "settings"),
    [
        ("llada/T0", {}),
        ("llada/T1", {"temperature": 1.0}),
        ("llada/cfg/mask", {"cfg_scale": 1.0}),
        ("llada/logits_eos_inf/T0.0", {"eos": "suppress"}),
        ("llada/logits_eos_inf/T1.0", {"eos": "suppress", "temperature": 1.0}),
        ("llada/confidence_eos_eot_inf/T0.0", {"eos": "last"}),
        ("llada/confidence_eos_eot_inf/T1.0", {"eos": "last", "temperature": 1.0}),
    ],
)
def test_static_is_lladas_sampler(llada: SimpleNamespace, case: str, settings: dict) -> None:
    cases = CASES["llada_generate"]
    canvas = text_canvas(cases["prompt"], 126464, MASK, cases["attention_mask"])
    assert tokens(written(llada, canvas, GREEDY | settings)) == cases[case]


@pytest.mark.parametrize(
    ("case", "settings"),
    [("maskgrpo/T0", {}), ("maskgrpo/T1", {"temperature": 1.0})]
    + [("maskgrpo/cfg", {"cfg_scale": 1.0}), ("maskgrpo/floor", {"steps": 6})]
    + [("maskgrpo/random", {"target": "random"})],
)
def test_static_is_mask_grpos_copy_of_it_which_sees_the_padding(
    llada: SimpleNamespace, case: str, settings: dict
) -> None:
    cases = CASES["llada_generate"]
    canvas = text_canvas(cases["prompt"], 126464, MASK)
    assert tokens(written(llada, canvas, GREEDY | settings, torch.float32)) == cases[case]


@pytest.mark.parametrize(
    ("case", "settings"),
    [("T0", {"block_size": 16}), ("T0/blocks", {"block_size": 4})]
    + [("T1", {"temperature": 1.0}), ("cfg", {"cfg_scale": 1.0}), ("mask", {})]
    + [("random", {"target": "random"}), ("uneven", {"steps": 6})],
)
def test_static_is_mmadas_sampler_for_understanding(
    maskgrpo: SimpleNamespace, case: str, settings: dict[str, Any]
) -> None:
    cases = CASES["mmada"]
    attend = cases["attention_mask"] if case == "mask" else None
    canvas = text_canvas(cases["text"], 134656, MASK, attend)
    assert tokens(written(maskgrpo, canvas, GREEDY | settings)) == cases[f"mmu_generate/{case}"]


@pytest.mark.parametrize(
    ("case", "settings"),
    [("generate/T0", {}), ("generate/T0.9", {"temperature": 0.9})]
    + [("generate/cfg", {"cfg_scale": 1.0}), ("generate/floor", {"block_size": 4, "steps": 4})]
    + [("generate/steps<blocks", {"block_size": 4, "steps": 4}), ("generate/remasking=random", {})]
    + [("generate_v2/one", {"name": "emerge", "temperature": 1.0, "block_size": None})]
    + [("generate_v2/blocks", {"name": "emerge", "temperature": 1.0, "block_size": 4})],
)
def test_static_and_emerge_are_the_samplers_of_mask_grpos_trainer(
    maskgrpo: SimpleNamespace, case: str, settings: dict[str, Any]
) -> None:
    cases = CASES["mmada_maskgrpo"]
    options = GREEDY | {"schedule": "linear"} | settings
    canvas = text_canvas(cases["text"], 134656, MASK)
    assert tokens(written(maskgrpo, canvas, options, torch.float32)) == cases[case]


@pytest.mark.parametrize(
    ("case", "settings"),
    [("static", {}), ("T1", {"temperature": 1.0})]
    + [("thr0.9", {"name": "dynamic", "threshold": 0.9, "steps": 16})]
    + [("thr0.3", {"name": "dynamic", "threshold": 0.3, "steps": 16})],
)
@pytest.mark.parametrize(
    ("loop", "cache"), [("vanilla", "none"), ("prefix", "prefix"), ("dual", "dual")]
)
def test_the_caches_are_fast_dllms_in_tokens_and_passes(
    fast_dllm: SimpleNamespace, loop: str, cache: str, case: str, settings: dict[str, Any]
) -> None:
    cases = CASES["llada_cached"]
    canvas = text_canvas(cases["prompt"], 512, 500)
    done = written(fast_dllm, canvas, GREEDY | {"cache": cache} | settings)
    assert tokens(done) == cases[f"{loop}/{case}"]
    assert done.forwards == cases["forwards"][f"{loop}/{case}"]


@torch.no_grad()
def test_cached_passes_give_fast_dllms_logits(fast_dllm: SimpleNamespace) -> None:
    """After a full pass over x, y is computed from position 6 on, or at positions 6 to 13."""
    public = load_file(FIXTURES / "text_samplers" / "forwards.safetensors")
    network = fast_dllm.network
    for name, start, stop in (("prefix", 6, 22), ("dual", 6, 14)):
        cache = network.new_cache()
        full = network(input_ids=public["x"], cache=cache.at(0, 22, 22)).logits
        later = public["y"][:, start:stop]
        part = network(input_ids=later, cache=cache.at(start, stop, 22)).logits
        # recorded on another processor, which sums in another order
        torch.testing.assert_close(full, public["full"], atol=5e-5, rtol=0)
        torch.testing.assert_close(part, public[name], atol=5e-5, rtol=0)


SEEING = json.loads((FIXTURES / "llada_v" / "tokens.json").read_text())
BANNED = (126081, 126080, 126346, 126347)


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    return bare_policy(load_model(write_llada_v(tmp_path_factory.mktemp("llada_v"))))


@pytest.mark.parametrize(
    ("case", "settings"),
    [("T0", {"steps": 8}), ("blocks", {"steps": 8, "block_size": 4}), ("T1", {"temperature": 1.0})]
    + [("cfg", {"cfg_scale": 1.0}), ("random", {"target": "random"}), ("suffix", {})]
    + [("stop", {"steps": 8, "eos": "leave"}), ("stop_hit", {"steps": 8, "eos": "leave"})]
    + [("stop_hit_blocks", {"steps": 8, "block_size": 4, "eos": "leave"})]
    + [("stop_hit_suffix", {"steps": 8, "eos": "leave"})],
)
def test_static_is_llada_vs_sampler(policy: SimpleNamespace, case: str, settings: dict) -> None:
    suffix = [77, 78] if case.endswith("suffix") else []
    tokens = torch.tensor([[*SEEING["prompt"], *[MASK] * 8, *suffix]])
    response = torch.zeros_like(tokens, dtype=torch.bool)
    response[:, 7:15] = True
    end = SEEING["stop"].get(case, 126348)
    other, ends = torch.full_like(tokens, MASK), {"stop_ids": (end,), "banned": BANNED}
    canvas = MaskedCanvas(tokens, response, None, (0, 126464), MASK, other, None, **ends)
    options = {"name": "static", "temperature": 0.0, "steps": 4} | settings
    done = sample_publicly(policy, canvas, SamplerConfig(**options)).canvas
    row, expected = done.tokens[0, 7:].tolist(), SEEING["generate"][case]
    assert row[: len(expected)] == expected
    # the public code returns what stands before the end
    assert row[len(expected) : len(expected) + 1] in ([], [end])


def test_what_is_banned_is_never_written(policy: SimpleNamespace) -> None:
    tokens = torch.tensor([[*SEEING["prompt"], *[MASK] * 8]])
    config = SamplerConfig(name="static", steps=8, temperature=0.0)

    def written(banned: tuple[int, ...]) -> set[int]:
        canvas = MaskedCanvas(tokens, tokens == MASK, None, (0, 126464), MASK, banned=banned)
        return set(sample(policy, canvas, config, Generator()).canvas.tokens[0, 7:].tolist())

    usual = written(())
    assert not usual & written(tuple(usual))
