import numpy as np
from PIL import Image

from mmrl.rollouts.held_out import Evaluation
from mmrl.rollouts.held_out_grid import write_grid
from mmrl.run.image_grid import BLACK, GAP, Cell, enlarge, page, scale
from mmrl.types import Prompt


def _dark(image: Image.Image) -> int:
    return int((np.asarray(image.convert("L")) < 128).sum())


def test_a_page_holds_its_cells_row_by_row() -> None:
    cells = [Cell(Image.new("RGB", (10, 10), (n, 0, 0))) for n in range(3)]
    sheet = page(cells, columns=2)
    assert sheet.size == (2 * (10 + GAP) + GAP, 2 * (10 + GAP) + GAP)
    places = [(GAP, GAP), (10 + 2 * GAP, GAP), (GAP, 10 + 2 * GAP)]
    assert [sheet.getpixel(place) for place in places] == [(0, 0, 0), (1, 0, 0), (2, 0, 0)]


def test_a_long_caption_wraps_to_the_width_of_its_image() -> None:
    white = Image.new("RGB", (90, 10), "white")
    short, long = (
        page([Cell(white, [(text, BLACK)])], 1)
        for text in ("a ring", "a ring left of a circle and two squares")
    )
    assert long.width == short.width and long.height > short.height
    assert _dark(long) > _dark(short) > 0


def test_small_images_are_enlarged_without_blur_and_large_ones_shrunk() -> None:
    image = Image.fromarray(np.array([[0, 255], [255, 0]], np.uint8)).convert("RGB")
    assert len(scale(image, 64).getcolors() or []) == 2 and enlarge(image, 5).size == (6, 6)
    assert enlarge(Image.new("RGB", (512, 256)), 128).size == (512, 256)
    assert scale(Image.new("RGB", (512, 256)), 128).size == (128, 64)


def test_a_grid_of_an_evaluation_is_spread_over_the_prompts(tmp_path) -> None:
    prompts = [Prompt(str(n), "text_to_image", "x") for n in range(8)]
    images = [Image.new("RGB", (128, 128), (30 * n, 0, 0)) for n in range(8)]
    result = Evaluation(prompts, list(images), {"strict": [1.0, float("nan")] * 4})
    write_grid(result, tmp_path / "grid.png", count=4)
    with Image.open(tmp_path / "grid.png") as grid:
        reds = [grid.getpixel((GAP + n * (128 + GAP), GAP))[0] for n in range(4)]
    assert reds == [0, 60, 120, 180]
