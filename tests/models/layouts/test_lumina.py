"""Lumina-DiMOO's rows, id for id, against the public code: images, edits and questions."""

import json
from dataclasses import replace
from typing import Any

import pytest
import torch
from PIL import Image
from safetensors.torch import load_file
from torch import Tensor

from mmrl.models.families.lumina import build_rows
from mmrl.models.layouts.image_codes_chat import CodesAlbum, LuminaChat
from mmrl.models.layouts.lumina_rows import ANSWER, LuminaRows
from mmrl.models.layouts.pixels import list_sizes
from mmrl.types import Prompt
from tests.models.lumina import (
    FIXTURE,
    MASK,
    build_layout,
    draw_network,
    public_tokenizer,
    public_vq,
)
from tests.models.small_policies import small_policy

CASES_OF = "lumina"
GRIDS = {"4x4": (4, 4), "2x6": (2, 6)}


@pytest.fixture(scope="module")
def texts() -> dict[str, Any]:
    return json.loads((FIXTURE / "cases.json").read_text())


@pytest.fixture(scope="module")
def rows() -> LuminaRows:
    return build_rows(draw_network(), public_tokenizer(), public_vq(), 200, (2, 6))


@pytest.mark.parametrize("grid", list(GRIDS))
@pytest.mark.parametrize("prompt", ["prompt0", "prompt1"])
def test_image_generation(
    rows: LuminaRows, cases: dict[str, Tensor], texts: dict[str, Any], prompt: str, grid: str
) -> None:
    name, (height, width) = f"t2i/{prompt}/{grid}", GRIDS[grid]
    masks = torch.full((2, height * width), MASK)
    rows = replace(rows, grid=(height, width))
    ids, attend = rows.text_to_image([texts[f"{name}/text"]] * 2, masks, [False, True])
    assert ids[0].tolist() == cases[f"{name}/ids"].tolist()
    uncond, tail = cases[f"{name}/uncond"].tolist(), height * (width + 1) + 4
    assert ids[1][attend[1].bool()].tolist()[:-tail] == uncond
    assert torch.equal(ids[:1, -tail:], ids[1:, -tail:]) and bool(attend[:, -tail:].all())
    written = rows.written((height, width))
    places = written.nonzero().flatten() + len(ids[0]) - len(written)
    assert places[0] == texts[f"{name}/code_start"]
    assert bool((ids[:, places] == MASK).all()) and int((ids == MASK).sum()) == 2 * masks.shape[1]


def read_edit(cases: dict[str, Tensor], kind: str) -> tuple[str, list[Tensor]]:
    """The instruction and the source images in codes, from a row of the public code."""
    ids, images = cases[f"edit/script/{kind}/ids"].tolist(), []
    user = ids.index(126102) + 1
    text = "".join(chr(point - 1000) for point in ids[user : ids.index(126349)])
    while (begin := ids.index(126349) + 1) < ids.index(126354):
        image = ids[begin : ids.index(126350)]
        width = image.index(126084)
        images.append(torch.tensor(image).view(-1, width + 1)[:, :width])
        ids[begin - 1 : begin + len(image) + 1] = []
    return text, images


def test_image_editing(rows: LuminaRows, cases: dict[str, Tensor], texts: dict[str, Any]) -> None:
    kind = "edit_add"
    text, images = read_edit(cases, kind)
    height, width = grid = tuple(images[-1].shape)  # the public canvas has the grid of the last
    rows, masks = replace(rows, grid=grid), torch.full((3, height * width), MASK)
    sources = [images, images, []]
    ids, attend = rows.text_to_image([text] * 3, masks, [False, True, False], sources)
    found = [row[mask.bool()].tolist() for row, mask in zip(ids, attend, strict=True)]
    assert found[0] == cases[f"edit/script/{kind}/ids"].tolist()
    tail = height * (width + 1) + 4
    assert len(found[0]) - tail + 2 == texts[f"edit/script/{kind}/code_start"]
    for row, name in zip(found[1:], ("uncon_text", "uncon_image"), strict=True):
        # the public code sets the tail of the canvas behind the branch at each step
        assert row[:-tail] == cases[f"edit/script/{kind}/{name}"].tolist()[: len(row) - tail]
        assert row[-tail:] == found[0][-tail:]


def test_a_longer_text_is_cut_before_the_end_of_its_turn(rows: LuminaRows) -> None:
    ids, attend = rows.text_to_image(["a" * 500, "a"], torch.zeros(2, 12, dtype=torch.long))
    row = ids[0].tolist()
    assert row[198:201] == [1000 + ord("a"), 126103, 126354] and bool(attend[0].all())
    assert ids[1][attend[1].bool()].tolist()[:-17] == [*row[:51], *row[199:201]]


def test_an_image_of_any_sides_is_written_and_read_in_the_same_order(rows: LuminaRows) -> None:
    layout = build_layout(draw_network(), "text_to_image", image_height=32, image_width=96)
    canvas = layout.canvas([Prompt("", "text_to_image", text) for text in ("a cat", "two dogs")])
    assert canvas.grid == (2, 6) and canvas.response.sum(1).tolist() == [12, 12]
    codes = torch.arange(24).view(2, 12) * 300
    canvas.tokens[canvas.response] = codes.flatten() + rows.code_offset
    image = rows.show(codes + rows.code_offset, (2, 6))
    assert torch.equal(canvas.tokens[:, -image.shape[1] - 1 : -1], image)
    assert canvas.tokens[canvas.response].view(2, 12).sub(rows.code_offset).equal(codes)
    branch = canvas.unconditional()
    assert torch.equal(branch.tokens[canvas.response], canvas.tokens[canvas.response])
    assert branch.attend is not None and not bool(branch.attend[:, 0].any())


CHAT_CASES = load_file(FIXTURE / "cases.safetensors")


@pytest.fixture(scope="module")
def chat() -> LuminaChat:
    return build_layout(draw_network(), "image_to_text", image_size=128)


def question(text: str = "what?", images: int = 1, **changes: Any) -> Prompt:
    shown = [Image.new("RGB", (96, 64), (40 * n, 0, 0)) for n in range(images)]
    return Prompt("q", "image_to_text", text, images=shown, **changes)


def codes_of(ids: list[int]) -> Tensor:
    """The image of a row, [4, 6]."""
    first = ids.index(126349) + 1
    return torch.tensor(ids[first : first + 28]).view(4, 7)[:, :6]


def test_a_row_is_that_of_the_public_benchmark_code(
    chat: LuminaChat, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = CHAT_CASES["mmu/clean/ids"].tolist()
    shown = chat.rows.show(codes_of(expected).flatten(), (4, 6)).tolist()
    monkeypatch.setattr(CodesAlbum, "_show", lambda *_: (shown, [-1] * len(shown)))
    canvas = chat.canvas([question()], 16)
    assert canvas.tokens.tolist() == [expected] and canvas.stop_ids == (126355,)
    assert canvas.tokens[canvas.response].tolist() == [MASK] * 16 and canvas.response.sum() == 16
    assert canvas.unconditional().tokens.eq(MASK).all() and canvas.columns == (0, 126356)
    assert chat.positions(question()) == 6 * 11 + 2, "160 x 96 pixels"


@pytest.mark.parametrize(("cells", "name"), [(256, "list_512"), (1024, "list_1024")])
def test_sizes_are_those_of_the_public_code(cells: int, name: str) -> None:
    listed = sorted((32 * width, 32 * height) for width, height in list_sizes(cells))
    assert listed == sorted(map(tuple, CHAT_CASES[f"crop/{name}"].tolist()))


def test_images_are_encoded_once_and_stand_before_the_end_of_the_turn() -> None:
    policy = small_policy("lumina")
    chat: Any = policy.layouts["image_to_text"]
    colours = [Image.new("RGB", (8, 8), (250, 0, 0)), Image.new("RGB", (16, 4), (0, 250, 0))]
    prompt = Prompt("q", "image_to_text", "a<image><image> b", images=colours)
    album = CodesAlbum(chat)
    rows = [album.add(colours, n)[0] for n in (0, 1, 0)]
    assert rows[0] is rows[2] and len(rows[0]) == 4 * 5 + 2
    canvas = policy.canvas([prompt], 4)
    ids, end = canvas.tokens[0].tolist(), chat.rows.prompt("", "")[-1]
    answer, tail = chat.ids["answer"], [*[canvas.mask_id] * 4, chat.ids["end_answer"]]
    assert ids[-len(rows[0]) - len(rows[1]) - 7 :] == [*rows[0], *rows[1], end, answer, *tail]
    assert len(ids) == len(chat.rows.prompt("ab", ANSWER)) + chat.positions(prompt) + 6


def test_it_reads_one_turn_of_a_user() -> None:
    with pytest.raises(ValueError, match="messages of user, user"):
        LuminaChat.check(question(messages=[{"role": "user", "content": "a"}] * 2))
