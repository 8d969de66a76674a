"""Rows of MMaDA, id for id against the public prompting code, and those of edits."""

import json
from dataclasses import replace

import torch
from PIL import Image
from safetensors.torch import load_file
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from mmrl.models.families.mmada import build_rows
from mmrl.models.layouts.mmada_rows import MmadaRows
from mmrl.models.layouts.text_to_image import ImageEdit
from mmrl.types import Prompt
from tests.mmrl.canvases import guided_logits
from tests.models.networks import FIXTURES
from tests.models.small_policies import small_policy

POLICY = small_policy("mmada")
TEXTS = ["is it", "is"]


def layout(mask_policy: str = "ignore") -> ImageEdit:
    edit = POLICY.layouts["image_edit"]
    assert isinstance(edit, ImageEdit)
    return replace(edit, mask_policy=mask_policy)


def prompts() -> list[Prompt]:
    colours = [(200, 30, 40), (20, 60, 220)]
    return [
        Prompt(str(n), "image_edit", text, images=[Image.new("RGB", (8, 8), colours[n])])
        for n, text in enumerate(TEXTS)
    ]


def strip(ids: Tensor, pad: int) -> list[int]:
    row = ids.tolist()
    return row[next(n for n, token in enumerate(row) if token != pad) :]


def test_a_row_is_the_source_the_instruction_and_the_masks() -> None:
    edit = layout()
    ids, text = edit.ids, POLICY.layouts["text_to_image"].canvas(prompts())
    canvas, n = edit.canvas(prompts()), 16
    for row, prompt in enumerate(prompts()):
        codes = edit.vq.get_code(torch.as_tensor(pixels(prompt.images[0])))[0]
        source = (codes + edit.rows.code_offset).tolist()
        words = POLICY.tokenizer(prompt.text, add_special_tokens=False)["input_ids"]
        shown = [ids["soi"], *source, ids["eoi"]]
        end = [ids["soi"], *[ids["mask"]] * n, ids["eoi"]]
        whole = [ids["t2i"], *shown, ids["bos"], *words, ids["eos"], *end]
        assert strip(canvas.tokens[row], ids["pad"]) == whole
        bare = [ids["t2i"], *shown, ids["bos"], ids["eos"], *end]
        assert strip(canvas.uncond_tokens[row], ids["pad"]) == bare
        # without its source an edit is a row of text to image
        written = strip(text.tokens[row], ids["pad"])
        assert strip(canvas.image_uncond_tokens[row], ids["pad"]) == written
    assert torch.equal(canvas.response.sum(1), torch.tensor([n, n]))
    assert bool((canvas.tokens[canvas.response] == ids["mask"]).all())
    assert bool((canvas.image_uncond_tokens[canvas.response] == ids["mask"]).all())


def pixels(image: Image.Image) -> Tensor:
    flat = torch.tensor(image.getpixel((0, 0))).float().div(255).sub(0.5).div(0.5)
    return flat[None, :, None, None].expand(1, 3, 8, 8).contiguous()


def test_masked_padding_makes_a_row_of_a_batch_what_it_is_alone() -> None:
    edit = layout("key_padding")
    together = edit.canvas(prompts())
    for row, prompt in enumerate(prompts()):
        alone = edit.canvas([prompt])
        for scales in ((0.0, 0.0), (1.5, 0.0), (1.5, 2.0)):
            found = guided_logits(
                POLICY, together[row : row + 1], together[row : row + 1].masked, *scales
            )
            expected = guided_logits(POLICY, alone, alone.masked, *scales)
            torch.testing.assert_close(found, expected, atol=5e-4, rtol=1e-4)
    shorter = edit.canvas(prompts()[1:])
    assert shorter.tokens.shape[1] == together.tokens.shape[1] - len(TEXTS[0]) + len(TEXTS[1])


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
