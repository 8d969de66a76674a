"""Lumina-DiMOO's public image sampler, step for step, from the same random numbers.

Drawn are Gumbel noise on the logits of each open position, where the temperature is above 0, and
then noise on its confidence, in this order.
"""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Generator, Tensor

from mmrl.samplers import RULES, SamplerConfig
from mmrl.samplers.confidence import most_certain
from mmrl.samplers.denoise import denoise
from mmrl.samplers.lumina import confidence, write_counts
from mmrl.samplers.rule import Prediction, Proposal, State
from mmrl.types import Canvas, Prompt, Rollout
from tests.models.lumina import FIXTURE, build_layout, draw_network
from tests.models.networks import bare_policy

TEXTS = {"prompt0": "a cat", "prompt1": "two red dogs, one blue bird"}
CASES = {
    "cfg0.0/T0.0": {},
    "cfg0.0/T1.0": {},
    "cfg4.0/T0.0": {},
    "cfg4.0/T1.0": {},
    "wide/cfg4.0/T0.0": {},
    "wide/cfg4.0/T1.0": {},
    "wide/cfg4.0/T0.5/steps3": {"steps": 3},
    "wide/cfg4.0/T1.0/steps1": {"steps": 1},
    "wide/cfg4.0/T1.0/steps20": {"steps": 20},
    "wide/cfg4.0/T1.0/generator99": {},
}
"""Cases of the public function `generate_image`, and their steps where not 8."""


@pytest.fixture(scope="module")
def cases() -> dict[str, Tensor]:
    return load_file(FIXTURE / "cases.safetensors")


@pytest.fixture(scope="module")
def policy() -> SimpleNamespace:
    return bare_policy(draw_network())


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
        self, state: State, where: Tensor, prediction: Prediction, config: SamplerConfig
    ) -> Proposal:
        logits, scale = prediction.logits, config.temperature
        tokens = logits.argmax(-1)
        if scale:
            tokens = (logits / scale + self.gumbel(*logits.shape)).argmax(-1)
        self.drawn.append(tokens)
        sure = confidence(prediction, tokens)
        self.confidence.append(sure.exp())
        scores = sure + scale * self.gumbel(len(tokens))
        return Proposal(tokens, most_certain(state, where, scores, write_counts(state, config)))


def build_canvas(policy: Any, case: str) -> Canvas:
    """The canvas of a case: 4 x 4 codes, or 2 x 6 for a wide image."""
    name, sides = ("prompt1", (32, 96)) if "wide" in case else ("prompt0", (64, 64))
    sizes = {"image_height": sides[0], "image_width": sides[1]}
    layout = build_layout(policy.network, "text_to_image", **sizes)
    return layout.canvas([Prompt("", "text_to_image", TEXTS[name])])


def sample_publicly(
    policy: Any, canvas: Canvas, case: str, draws: PublicDraws, **options: Any
) -> Rollout:
    """A rollout with the public draws."""
    cfg, temperature = (part[3:] if part[0] == "c" else part[1:] for part in case.split("/")[:2])
    scales = {"cfg_scale": float(cfg), "temperature": float(temperature)}
    config = SamplerConfig(name="lumina", **{"steps": 8, **options}, **scales)
    rule = RULES["lumina"]._replace(propose=draws.propose)
    return denoise(policy, canvas, config, rule, Generator())


def check_steps(
    done: Rollout, draws: PublicDraws, cases: dict[str, Tensor], name: str, mask_id: int
) -> None:
    """Compare codes, canvases, draws and confidences of every step with the public ones."""
    response, canvases = done.canvas.response, cases[f"{name}/canvas"].long()
    tokens, written_at = done.canvas.tokens[response], done.written_at[response]
    assert tokens.tolist() == cases[f"{name}/tokens"].tolist()
    assert len(draws.drawn) == len(canvases)
    for step, canvas in enumerate(canvases):
        before = torch.where(written_at < step, tokens, mask_id)
        assert before.tolist() == canvas.tolist()
        open_ = canvas == mask_id
        assert draws.drawn[step].tolist() == cases[f"{name}/drawn"][step][open_].tolist()
        sure = cases[f"{name}/conf"][step][open_]
        torch.testing.assert_close(draws.confidence[step], sure, atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("case", list(CASES))
def test_every_step_is_that_of_the_public_code(
    policy: SimpleNamespace, cases: dict[str, Tensor], case: str
) -> None:
    canvas = build_canvas(policy, case)
    draws = PublicDraws(99 if "generator99" in case else 0)
    done = sample_publicly(policy, canvas, case.removeprefix("wide/"), draws, **CASES[case])
    check_steps(done, draws, cases, f"generate/{case}", canvas.mask_id)
