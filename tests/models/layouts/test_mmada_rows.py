"""Every row, id for id, against the public prompting code, and what a row promises."""

import json

import torch
from safetensors.torch import load_file
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from mmrl.models.families.mmada import build_rows
from mmrl.models.layouts.mmada_rows import MmadaRows
from tests.models.networks import FIXTURES

MASK, IMAGE_TOKENS = 126336, 16


CASES = load_file(FIXTURES / "mmada" / "cases.safetensors")


def same(actual: tuple[Tensor, Tensor], name: str) -> None:
    for found, part in zip(actual, "01", strict=True):
        expected = CASES[f"layouts/{name}/{part}"]
        assert torch.equal(found, expected) and found.dtype == expected.dtype


def test_rows_are_those_of_the_public_code(tokenizer: PreTrainedTokenizerBase) -> None:
    rows: MmadaRows = build_rows(tokenizer, 20)
    texts = json.loads((FIXTURES / "mmada" / "cases.json").read_text())
    masks = torch.full((2, IMAGE_TOKENS), MASK)
    same(rows.text_to_image(texts["texts"], masks), "t2i_gen")
    same(rows.text_to_image(["", ""], masks), "t2i_gen_uncond")
    codes = CASES["layouts/t2i/0"][:, -IMAGE_TOKENS - 1 : -1]
    same(rows.text_to_image(texts["texts"], codes, drop=[True, False]), "t2i")
    same(rows.language(texts["texts"], 30), "lm")
    same(rows.image_to_text(texts["chat"], CASES["layouts/mmu/0"][:, 2 : 2 + IMAGE_TOKENS]), "mmu")
