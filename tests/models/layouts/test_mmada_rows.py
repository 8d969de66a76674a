"""Every layout, id for id, against the public prompting code, and what a layout promises."""

import json

import pytest
import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from torch import Tensor
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from models.layouts.mmada_rows import MmadaRows
from tests.models.networks import FIXTURES

MASK, IMAGE_TOKENS = 126336, 16


@pytest.fixture(scope="module")
def cases() -> dict[str, Tensor]:
    return load_file(FIXTURES / "mmada" / "cases.safetensors")


@pytest.fixture(scope="module")
def texts() -> dict[str, list[str]]:
    return json.loads((FIXTURES / "mmada" / "cases.json").read_text())


@pytest.fixture(scope="module")
def layouts(tokenizer: PreTrainedTokenizerBase) -> MmadaRows:
    return MmadaRows(tokenizer, 20)


def same(actual: tuple[Tensor, Tensor], cases: dict[str, Tensor], name: str) -> None:
    ids, mask = actual
    assert torch.equal(ids, cases[f"layouts/{name}/0"])
    expected = cases[f"layouts/{name}/1"]
    assert torch.equal(mask, expected) and mask.dtype == expected.dtype


def test_image_generation(
    layouts: MmadaRows, cases: dict[str, Tensor], texts: dict[str, list[str]]
) -> None:
    masks = torch.full((2, IMAGE_TOKENS), MASK)
    same(layouts.text_to_image(texts["texts"], masks), cases, "t2i_gen")
    same(layouts.text_to_image(["", ""], masks), cases, "t2i_gen_uncond")


def test_image_generation_in_training_with_the_first_text_dropped(
    layouts: MmadaRows, cases: dict[str, Tensor], texts: dict[str, list[str]]
) -> None:
    codes = cases["layouts/t2i/0"][:, -IMAGE_TOKENS - 1 : -1]
    same(layouts.text_to_image(texts["texts"], codes, drop=[True, False]), cases, "t2i")


def test_text_and_chat(
    layouts: MmadaRows, cases: dict[str, Tensor], texts: dict[str, list[str]]
) -> None:
    same(layouts.language(texts["texts"], 30), cases, "lm")
    same(layouts.chat(texts["chat"], 70), cases, "lm_chat")


def test_image_understanding(
    layouts: MmadaRows, cases: dict[str, Tensor], texts: dict[str, list[str]]
) -> None:
    codes = cases["layouts/mmu/0"][:, 2 : 2 + IMAGE_TOKENS]
    same(layouts.image_to_text(texts["chat"], codes), cases, "mmu")


def test_reasoning_before_an_image(
    layouts: MmadaRows, cases: dict[str, Tensor], texts: dict[str, list[str]]
) -> None:
    codes = cases["layouts/r2i/0"][:, -IMAGE_TOKENS - 1 : -1]
    same(layouts.reasoning_to_image(texts["chat"], codes), cases, "r2i")


def test_codes_follow_the_tokenizer_in_the_vocabulary(
    layouts: MmadaRows, cases: dict[str, Tensor]
) -> None:
    assert layouts.code_offset == 126349
    assert cases["layouts/t2i/0"][:, -IMAGE_TOKENS - 1 : -1].min() == layouts.code_offset


def test_a_text_longer_than_the_row_is_cut_and_still_ends(layouts: MmadaRows) -> None:
    masks = torch.full((1, 4), MASK)
    ids, mask = layouts.text_to_image(["a" * 50], masks)
    assert ids.shape == (1, 20 + 4 + 3) and bool(mask.all())
    assert ids[0, 0] == layouts.ids["t2i"] and ids[0, 20] == layouts.ids["eos"]


def test_the_unconditional_row_differs_in_the_text_only(layouts: MmadaRows) -> None:
    codes = torch.arange(8).view(2, 4) + layouts.code_offset
    rows, _ = layouts.text_to_image(["a cat", "a dog"], codes)
    bare, _ = layouts.text_to_image(["", ""], codes)
    dropped, _ = layouts.text_to_image(["a cat", "a dog"], codes, drop=[True, True])
    assert torch.equal(bare, dropped)
    assert torch.equal(rows[:, -6:], bare[:, -6:])


def test_a_tokenizer_without_the_special_tokens_is_refused_with_their_names() -> None:
    plain = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(WordLevel({"a": 0}, "a")))
    with pytest.raises(ValueError, match=r"<\|mdm_mask\|>"):
        _ = MmadaRows(plain, 20).ids
