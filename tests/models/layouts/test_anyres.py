"""Any-resolution tiling: the public code's numbers, and what follows from the geometry."""

import pytest
import torch
from PIL import Image

from mmrl.models.layouts.anyres import Tiling, read_grids

CASES_OF = "llada_v"
PUBLIC = Tiling(384, 27, read_grids("(1x1),...,(6x6)", 384), 4)
SMALL = Tiling(8, 2, read_grids("(1x1),...,(2x2)", 8), 4)


@pytest.mark.parametrize(
    ("size", "tiles", "rows"),
    [((300, 200), 2, 1261), ((768, 500), 5, 2709), ((500, 1200), 9, 3681), ((384, 384), 2, 1485)],
)
def test_tiles_and_rows_are_as_many_as_in_the_public_code(
    size: tuple[int, int], tiles: int, rows: int
) -> None:
    assert (PUBLIC.count(*size), PUBLIC.rows(*size)) == (tiles, rows)


@pytest.mark.parametrize("name", ["300x200", "384x384"])
def test_tiles_are_those_of_the_public_code_bit_for_bit(name: str, cases: dict) -> None:
    tiles = PUBLIC.cut(Image.fromarray(cases[f"{name}/image"].numpy()))
    assert tiles.shape == (2, 3, 384, 384) and tiles.dtype == torch.uint8
    pixels = tiles.double().mul(1 / 255).float().sub(0.5).div(0.5)
    assert torch.equal(pixels.flatten()[::97], cases[f"{name}/pixels/every97"])


def test_rows_counted_beforehand_are_those_there_are_in_every_shape() -> None:
    for tiling, scale in ((SMALL, 1), (PUBLIC, 30)):
        for width in range(1, 40, 3):
            for height in range(1, 40, 4):
                size = width * scale, height * scale
                tiles = torch.randn(tiling.count(*size), tiling.patches**2, 2)
                rows = tiling.arrange(tiles, torch.zeros(2), *size)
                assert rows.shape == (tiling.rows(*size), 2), size


def test_patches_stand_where_they_are_in_the_image_and_lines_end_with_the_newline() -> None:
    # two tiles side by side show an image of 16 x 8 pixels without a border
    assert SMALL.grid(16, 8) == (2, 1)
    numbers = torch.arange(12.0).view(3, 4, 1)
    rows = SMALL.arrange(numbers, torch.tensor([-1.0]), 16, 8)[:, 0].tolist()
    assert rows == [0, 1, 2, 3, 4, 5, 8, 9, -1, 6, 7, 10, 11, -1]
