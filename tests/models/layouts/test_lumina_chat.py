"""Questions about images for Lumina-DiMOO: rows of the public code, sizes, and what is refused."""

from typing import Any

import pytest
import torch
from PIL import Image
from safetensors.torch import load_file
from torch import Tensor

from mmrl.models.layouts.image_codes_chat import CodesAlbum
from mmrl.models.layouts.lumina_chat import LuminaChat
from mmrl.models.layouts.lumina_rows import ANSWER
from mmrl.models.layouts.pixels import list_sizes
from mmrl.types import Prompt
from tests.models.lumina import FIXTURE, MASK, build_layout, draw_network
from tests.models.small_policies import small_policy

CASES = load_file(FIXTURE / "cases.safetensors")


@pytest.fixture(scope="module")
def layout() -> LuminaChat:
    return build_layout(draw_network(), "image_to_text", image_size=128)


def question(text: str = "what?", images: int = 1, **changes: Any) -> Prompt:
    shown = [Image.new("RGB", (96, 64), (40 * n, 0, 0)) for n in range(images)]
    return Prompt("q", "image_to_text", text, images=shown, **changes)


def codes_of(ids: list[int]) -> Tensor:
    """The image of a row, [4, 6]."""
    first = ids.index(126349) + 1
    return torch.tensor(ids[first : first + 28]).view(4, 7)[:, :6]


def test_a_row_is_that_of_the_public_benchmark_code(
    layout: LuminaChat, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = CASES["mmu/clean/ids"].tolist()
    shown = layout.rows.show(codes_of(expected).flatten(), (4, 6)).tolist()
    monkeypatch.setattr(CodesAlbum, "_show", lambda *_: (shown, [-1] * len(shown)))
    canvas = layout.canvas([question()], 16)
    assert canvas.tokens.tolist() == [expected] and canvas.stop_ids == (126355,)
    assert canvas.tokens[canvas.response].tolist() == [MASK] * 16 and canvas.response.sum() == 16
    assert canvas.unconditional().tokens.eq(MASK).all() and canvas.columns == (0, 126356)
    assert layout.positions(question()) == 6 * 11 + 2, "160 x 96 pixels"


@pytest.mark.parametrize(("cells", "name"), [(256, "list_512"), (1024, "list_1024")])
def test_sizes_are_those_of_the_public_code(cells: int, name: str) -> None:
    listed = sorted((32 * width, 32 * height) for width, height in list_sizes(cells))
    assert listed == sorted(map(tuple, CASES[f"crop/{name}"].tolist()))


def test_images_are_encoded_once_and_stand_before_the_end_of_the_turn() -> None:
    policy = small_policy("lumina")
    layout: Any = policy.layouts["image_to_text"]
    colours = [Image.new("RGB", (8, 8), (250, 0, 0)), Image.new("RGB", (16, 4), (0, 250, 0))]
    prompt = Prompt("q", "image_to_text", "a<image><image> b", images=colours)
    album = CodesAlbum(layout)
    rows = [album.add(colours, n)[0] for n in (0, 1, 0)]
    assert rows[0] is rows[2] and len(rows[0]) == 4 * 5 + 2
    canvas = policy.canvas([prompt], 4)
    ids, end = canvas.tokens[0].tolist(), layout.rows.prompt("", "")[-1]
    answer, tail = layout.ids["answer"], [*[canvas.mask_id] * 4, layout.ids["end_answer"]]
    assert ids[-len(rows[0]) - len(rows[1]) - 7 :] == [*rows[0], *rows[1], end, answer, *tail]
    assert len(ids) == len(layout.rows.prompt("ab", ANSWER)) + layout.positions(prompt) + 6


def test_it_reads_one_turn_of_a_user() -> None:
    with pytest.raises(ValueError, match="messages of user, user"):
        LuminaChat.check(question(messages=[{"role": "user", "content": "a"}] * 2))
