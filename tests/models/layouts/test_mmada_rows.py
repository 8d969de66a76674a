"""Every row, id for id, against the public prompting code, and what a row promises."""

import json

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from mmrl.models.families.mmada import build_rows
from mmrl.models.layouts.mmada_rows import MmadaRows
from tests.models.networks import FIXTURES

MASK, IMAGE_TOKENS = 126336, 16


@pytest.fixture(scope="module")
def cases() -> dict[str, Tensor]:
    return load_file(FIXTURES / "mmada" / "cases.safetensors")


@pytest.fixture(scope="module")
def texts() -> dict[str, list[str]]:
    return json.loads((FIXTURES / "mmada" / "cases.json").read_text())


@pytest.fixture(scope="module")
def rows(tokenizer: PreTrainedTokenizerBase) -> MmadaRows:
    return build_rows(tokenizer, 20)


def same(actual: tuple[Tensor, Tensor], cases: dict[str, Tensor], name: str) -> None:
    ids, mask = actual
    assert torch.equal(ids, cases[f"layouts/{name}/0"])
    expected = cases[f"layouts/{name}/1"]
    assert torch.equal(mask, expected) and mask.dtype == expected.dtype


def test_image_generation(
    rows: MmadaRows, cases: dict[str, Tensor], texts: dict[str, list[str]]
) -> None:
    masks = torch.full((2, IMAGE_TOKENS), MASK)
    same(rows.text_to_image(texts["texts"], masks), cases, "t2i_gen")
    same(rows.text_to_image(["", ""], masks), cases, "t2i_gen_uncond")


def test_image_generation_in_training_with_the_first_text_dropped(
    rows: MmadaRows, cases: dict[str, Tensor], texts: dict[str, list[str]]
) -> None:
    codes = cases["layouts/t2i/0"][:, -IMAGE_TOKENS - 1 : -1]
    same(rows.text_to_image(texts["texts"], codes, drop=[True, False]), cases, "t2i")


def test_text(rows: MmadaRows, cases: dict[str, Tensor], texts: dict[str, list[str]]) -> None:
    same(rows.language(texts["texts"], 30), cases, "lm")


def test_image_understanding(
    rows: MmadaRows, cases: dict[str, Tensor], texts: dict[str, list[str]]
) -> None:
    codes = cases["layouts/mmu/0"][:, 2 : 2 + IMAGE_TOKENS]
    same(rows.image_to_text(texts["chat"], codes), cases, "mmu")
