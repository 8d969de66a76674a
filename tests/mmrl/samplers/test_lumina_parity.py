"""Lumina-DiMOO's public image sampler, step for step, from the same random numbers.

Drawn are Gumbel noise on the logits of each open position, where the temperature is above 0, and
then noise on its confidence, in this order.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Generator, Tensor

from mmrl.generation.masked.canvas import MaskedCanvas
from mmrl.generation.masked.samplers.confidence import most_certain
from mmrl.generation.masked.samplers.rule import Prediction, State
from mmrl.generation.masked.samplers.scheduled import log_confidence, lumina_counts
from mmrl.generation.tokens.positions import Positions
from mmrl.samplers import SamplerConfig, sample
from mmrl.types import Prompt, Rollout
from tests.mmrl.canvases import generators
from tests.mmrl.samplers.public_samplers import Proposal, propose_with
from tests.mmrl.samplers.public_samplers import sample_publicly as sample_answer
from tests.models.layouts.test_lumina import read_edit
from tests.models.lumina import MASK, build_layout, draw_network
from tests.models.networks import bare_policy

CASES_OF = "lumina"
TEXTS = {"prompt0": "a cat", "prompt1": "two red dogs, one blue bird"}
CASES = {"cfg0.0/T0.0": {}, "cfg0.0/T1.0": {}, "cfg4.0/T0.0": {}, "cfg4.0/T1.0": {}}
CASES |= {"wide/cfg4.0/T0.0": {}, "wide/cfg4.0/T1.0": {}, "wide/cfg4.0/T0.5/steps3": {"steps": 3}}
CASES |= {"wide/cfg4.0/T1.0/steps1": {"steps": 1}, "wide/cfg4.0/T1.0/steps20": {"steps": 20}}
CASES |= {"wide/cfg4.0/T1.0/generator99": {}}
"""Cases of the public function `generate_image`, and their steps where not 8."""


@pytest.fixture(scope="module")
def policy() -> SimpleNamespace:
    return bare_policy(draw_network())


def some_slow(names: list[str], fast: set[str]) -> Any:
    """All cases, of which few are run without the slow tests."""
    marked = [pytest.param(n, marks=[pytest.mark.slow] * (n not in fast)) for n in names]
    return pytest.mark.parametrize("case", marked)


class PublicDraws:
    """The rule with the draws of the public code; keeps what it saw at each step."""

    def __init__(self, seed: int = 0) -> None:
        self.generator = Generator().manual_seed(seed)
        self.drawn: list[Tensor] = []
        self.confidence: list[Tensor] = []

    def gumbel(self, *shape: int) -> Tensor:
        uniform = torch.rand(shape, generator=self.generator)
        return -(-(uniform + 1e-20).log() + 1e-20).log()

    def propose(
        self, state: State, where: Positions, prediction: Prediction, config: SamplerConfig
    ) -> Proposal:
        logits, scale = prediction.logits, config.temperature
        tokens = logits.argmax(-1)
        if scale:
            tokens = (logits / scale + self.gumbel(*logits.shape)).argmax(-1)
        self.drawn.append(tokens)
        sure = log_confidence(prediction, tokens)
        self.confidence.append(sure.exp())
        scores = sure + scale * self.gumbel(len(tokens))
        return tokens, most_certain(state, where, scores, lumina_counts(state, config))


def build_canvas(policy: Any, case: str) -> MaskedCanvas:
    """The canvas of a case: 4 x 4 codes, or 2 x 6 for a wide image."""
    name, sides = ("prompt1", (32, 96)) if "wide" in case else ("prompt0", (64, 64))
    sizes = {"image_height": sides[0], "image_width": sides[1]}
    layout = build_layout(policy.network, "text_to_image", **sizes)
    return layout.canvas([Prompt("", "text_to_image", TEXTS[name])])


def sample_publicly(
    policy: Any, canvas: MaskedCanvas, case: str, draws: PublicDraws, **options: Any
) -> Rollout:
    """A rollout with the public draws."""
    cfg, temperature = (part[3:] if part[0] == "c" else part[1:] for part in case.split("/")[:2])
    scales = {"cfg_scale": float(cfg), "temperature": float(temperature)}
    config = SamplerConfig(name="lumina", **{"steps": 8, **options}, **scales)
    return propose_with(policy, canvas, config, draws.propose)


def check_steps(
    done: Rollout, draws: PublicDraws, cases: dict[str, Tensor], name: str, mask_id: int
) -> None:
    """Compare codes, canvases, draws and confidences of every step with the public ones."""
    response, canvases = done.canvas.response, cases[f"{name}/canvas"].long()
    tokens, written_at = done.canvas.tokens[response], done.trace[response]
    assert tokens.tolist() == cases[f"{name}/tokens"].tolist()
    assert len(draws.drawn) == len(canvases)
    for step, canvas in enumerate(canvases):
        before = torch.where(written_at < step, tokens, mask_id)
        assert before.tolist() == canvas.tolist()
        open_ = canvas == mask_id
        assert draws.drawn[step].tolist() == cases[f"{name}/drawn"][step][open_].tolist()
        sure = cases[f"{name}/conf"][step][open_]
        torch.testing.assert_close(draws.confidence[step], sure, atol=2e-5, rtol=1e-4)


@some_slow(list(CASES), fast={"cfg0.0/T1.0", "cfg4.0/T0.0", "wide/cfg4.0/T0.5/steps3"})
def test_every_step_is_that_of_the_public_code(
    policy: SimpleNamespace, cases: dict[str, Tensor], case: str
) -> None:
    canvas = build_canvas(policy, case)
    draws = PublicDraws(99 if "generator99" in case else 0)
    done = sample_publicly(policy, canvas, case.removeprefix("wide/"), draws, **CASES[case])
    check_steps(done, draws, cases, f"generate/{case}", canvas.mask_id)


CACHED = {"cfg4.0/T0.0/cache": {}, "cfg4.0/T1.0/cache": {}, "wide/cfg4.0/T1.0/cache": {}}
CACHED |= {"wide/cfg4.0/T1.0/cache_0.5_0.2_3": {"steps": 12}}
CACHED |= {"wide/cfg4.0/T0.0/cache_0.5_0.2_3": {"steps": 12}}
"""Cases with the token-refresh cache; at ratio 0.9, warm-up 0.3 and interval 5, or as named."""


@contextmanager
def watch(policy: Any) -> Iterator[list[Tensor | None]]:
    """The positions that each forward pass computes, None for all."""
    computed: list[Tensor | None] = []
    hook = policy.network.register_forward_pre_hook(
        lambda _, __, inputs: computed.append(inputs.get("position_ids")), with_kwargs=True
    )
    try:
        yield computed
    finally:
        hook.remove()


@some_slow(list(CACHED), fast={"cfg4.0/T0.0/cache", "wide/cfg4.0/T1.0/cache_0.5_0.2_3"})
def test_the_cache_computes_the_positions_of_the_public_code_again(
    policy: SimpleNamespace, cases: dict[str, Tensor], case: str
) -> None:
    canvas, draws = build_canvas(policy, case), PublicDraws()
    ratio, warmup, every = map(float, case.split("_")[1:] or (0.9, 0.3, 5))
    options = {"cache_ratio": ratio, "warmup_ratio": warmup, "refresh_interval": int(every)}
    with watch(policy) as computed:
        name = case.removeprefix("wide/").rpartition("/")[0]
        done = sample_publicly(
            policy, canvas, name, draws, cache="refresh", **options, **CACHED[case]
        )
    check_steps(done, draws, cases, f"generate/{case}", canvas.mask_id)
    assert done.forwards == len(computed) == len(draws.drawn)
    length = canvas.tokens.shape[1]
    for row, side in enumerate(("cond", "uncond")):
        public = cases[f"generate/{case}/recomputed_{side}"]
        for step, index in enumerate(computed):
            again = torch.zeros(length, dtype=torch.bool)
            again[slice(None) if index is None else index[row]] = True
            assert again[length - public.shape[1] :].tolist() == public[step].tolist()


ANSWERS = {"T0": {"block_size": 16}, "T0/blocks": {"block_size": 4}, "T0/uneven": {"steps": 6}}
ANSWERS |= {"T1": {"temperature": 1.0}, "random": {"target": "random"}, "cfg": {"cfg_scale": 1.0}}
"""Answers about an image: 16 tokens in 8 steps and two blocks, but for what is named."""


@some_slow(list(ANSWERS), fast={"T0/blocks"})
def test_static_is_its_sampler_for_understanding(
    policy: SimpleNamespace, cases: dict[str, Tensor], case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        MaskedCanvas, "forbidden_columns", property(lambda _: [])
    )  # the public code draws masks too
    ids = cases["mmu/short/ids"].long()[None]
    canvas = MaskedCanvas(ids, ids == MASK, None, (0, 134548), MASK, torch.full_like(ids, MASK))
    usual = {"name": "static", "temperature": 0.0, "steps": 8, "block_size": 8}
    config = SamplerConfig(**{**usual, **ANSWERS[case]})
    done = sample_answer(policy, canvas, config)
    assert done.canvas.tokens.tolist() == [cases[f"mmu/generate/{case}/out"].tolist()]
    tokens, written_at = (t[canvas.response] for t in (done.canvas.tokens, done.trace))
    for step, before in enumerate(cases[f"mmu/generate/{case}/canvas"]):
        assert torch.where(written_at < step, tokens, MASK).tolist() == before.tolist()


@pytest.mark.parametrize("scale", [pytest.param(0.0, marks=pytest.mark.slow), 4.0])
def test_a_row_is_cached_beside_others_as_alone(policy: SimpleNamespace, scale: float) -> None:
    layout = build_layout(policy.network, "text_to_image", image_size=64)
    prompts = [Prompt("", "text_to_image", text) for text in TEXTS.values()]
    config = SamplerConfig(
        name="lumina", steps=8, cfg_scale=scale, cache="refresh", cache_ratio=0.6, warmup_ratio=0.1
    )
    with watch(policy) as computed:
        done = sample(policy, layout.canvas(prompts), config, generators(2))
    assert sum(index is not None for index in computed) >= 4
    for row, prompt in enumerate(prompts):
        alone = sample(policy, layout.canvas([prompt]), config, generators(2)[row : row + 1])
        response, own = done.canvas.response[row], alone.canvas.response[0]
        assert torch.equal(done.canvas.tokens[row, response], alone.canvas.tokens[0, own])


EDITS = {"cfg2.5_4.0/T0.0": 3, "cfg2.5_0/T1.0": 2, "cfg0_4.0/T1.0": 2, "cfg0_0/T1.0": 1}
"""Scales of text and image, temperature, and forward passes of a step."""


@pytest.fixture(scope="module")
def canvas(policy: SimpleNamespace, cases: dict[str, Tensor]) -> MaskedCanvas:
    """The canvas of the public case, whose source image is known by its codes."""
    text, images = read_edit(cases, "edit_add")
    height, width = images[0].shape
    sides = {"image_height": 16 * height, "image_width": 16 * width}
    layout = build_layout(policy.network, "image_edit", **sides)
    masks, rows = torch.full((1, height * width), MASK), layout.rows
    return layout._lay_out(
        rows.text_to_image([text], masks, None, [images]),
        rows.text_to_image([text], masks, [True], [images]),
        rows.text_to_image([text], masks, None, [()]),
    )


@pytest.mark.parametrize("case", list(EDITS))
def test_every_step_of_an_edit_is_that_of_the_public_code(
    policy: SimpleNamespace, canvas: MaskedCanvas, cases: dict[str, Tensor], case: str
) -> None:
    text, image = case.split("/")[0].removeprefix("cfg").split("_")
    draws, seen = PublicDraws(), []
    counted = replace_model(policy, seen)
    name = case.replace(f"cfg{text}_{image}", f"cfg{text}")
    scale = {"image_guidance_scale": float(image), "steps": 6}
    done = sample_publicly(counted, canvas, name, draws, **scale)
    check_steps(done, draws, cases, f"edit/generate/{case}", canvas.mask_id)
    assert seen == [EDITS[case]] * 6


def replace_model(policy: SimpleNamespace, seen: list[int]) -> SimpleNamespace:
    """The policy with a record of the rows of each forward pass."""

    def model(**inputs: Tensor) -> object:
        seen.append(len(inputs["input_ids"]))
        return policy.model(**inputs)

    return SimpleNamespace(**{**vars(policy), "model": model})
