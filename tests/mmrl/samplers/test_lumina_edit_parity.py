"""Lumina-DiMOO's edits with their two guidances, step for step, from the same random numbers."""

from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from mmrl.generation.masked.canvas import MaskedCanvas
from tests.mmrl.samplers.test_lumina_parity import PublicDraws, check_steps, sample_publicly
from tests.models.layouts.test_lumina import read_edit
from tests.models.lumina import FIXTURE, MASK, build_layout, draw_network
from tests.models.networks import bare_policy

CASES = {"cfg2.5_4.0/T0.0": 3, "cfg2.5_0/T1.0": 2, "cfg0_4.0/T1.0": 2, "cfg0_0/T1.0": 1}
"""Scales of text and image, temperature, and forward passes of a step."""


@pytest.fixture(scope="module")
def cases() -> dict[str, Tensor]:
    return load_file(FIXTURE / "cases.safetensors")


@pytest.fixture(scope="module")
def policy() -> SimpleNamespace:
    return bare_policy(draw_network())


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


@pytest.mark.parametrize("case", list(CASES))
def test_every_step_is_that_of_the_public_code(
    policy: SimpleNamespace, canvas: MaskedCanvas, cases: dict[str, Tensor], case: str
) -> None:
    text, image = case.split("/")[0].removeprefix("cfg").split("_")
    draws, seen = PublicDraws(), []
    counted = replace_model(policy, seen)
    name = case.replace(f"cfg{text}_{image}", f"cfg{text}")
    scale = {"image_guidance_scale": float(image), "steps": 6}
    done = sample_publicly(counted, canvas, name, draws, **scale)
    check_steps(done, draws, cases, f"edit/generate/{case}", canvas.mask_id)
    assert seen == [CASES[case]] * 6


def replace_model(policy: SimpleNamespace, seen: list[int]) -> SimpleNamespace:
    """The policy with a record of the rows of each forward pass."""

    def model(**inputs: Tensor) -> object:
        seen.append(len(inputs["input_ids"]))
        return policy.model(**inputs)

    return SimpleNamespace(**{**vars(policy), "model": model})
