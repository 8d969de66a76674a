"""Images with captions, arranged on one page; images while they are denoised."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from PIL import Image, ImageDraw, ImageFont, ImageOps

GAP, FONT_SIZE, LINE = 6, 12, 15
"""Pixels between images, of the font and of a line."""
WHITE, BLACK = (255, 255, 255), (32, 32, 32)
GREY, EDGE = (228, 228, 228), (204, 204, 204)
"""Cells that are still masked."""


@dataclass
class Cell:
    """An image and the lines below it, each with its colour."""

    image: Image.Image
    lines: Sequence[tuple[str, tuple[int, int, int]]] = ()


def page(cells: Sequence[Cell], columns: int) -> Image.Image:
    """Arrange cells in rows on white; images of one size, captions wrapped to their width."""
    captioned = [
        stack([cell.image, *(_draw(text, cell.image.width, color) for text, color in cell.lines)])
        for cell in cells
    ]
    width, height = cells[0].image.width + GAP, max(each.height for each in captioned) + GAP
    rows, across = -(-len(cells) // columns), min(columns, len(cells))
    sheet = Image.new("RGB", (across * width + GAP, rows * height + GAP), WHITE)
    for n, each in enumerate(captioned):
        sheet.paste(each, (GAP + n % columns * width, GAP + n // columns * height))
    return sheet


def stack(pages: Sequence[Image.Image]) -> Image.Image:
    """Put pages below each other."""
    tops = [sum(page.height for page in pages[:n]) for n in range(len(pages) + 1)]
    sheet = Image.new("RGB", (max(page.width for page in pages), tops[-1]), WHITE)
    for part, top in zip(pages, tops, strict=False):
        sheet.paste(part, (0, top))
    return sheet


def beside(left: Image.Image, right: Image.Image) -> Image.Image:
    """Put two images next to each other on white."""
    width, height = left.width + GAP + right.width, max(left.height, right.height)
    sheet = Image.new("RGB", (width, height), WHITE)
    sheet.paste(left, (0, 0))
    sheet.paste(right, (left.width + GAP, 0))
    return sheet


def draw_heading(text: str, width: int) -> Image.Image:
    """Draw a caption for a row of images, wrapped to its width."""
    return ImageOps.expand(_draw(text, width - GAP), (GAP, GAP, 0, 0), WHITE)


def _draw(text: str, width: int, color: tuple[int, int, int] = BLACK) -> Image.Image:
    """A text wrapped to a width; a word longer than a line stays whole."""
    font = ImageFont.load_default(FONT_SIZE)
    lines: list[str] = []
    for word in text.split():
        longer = f"{lines[-1]} {word}" if lines else word
        if lines and font.getlength(longer) <= width:
            lines[-1] = longer
        else:
            lines.append(word)
    label = Image.new("RGB", (width, LINE * len(lines)), WHITE)
    draw = ImageDraw.Draw(label)
    for n, line in enumerate(lines):
        draw.text((0, n * LINE), line, color, font)
    return label


def scale(image: Image.Image, side: int) -> Image.Image:
    """Scale an image to `side` pixels width; small ones are enlarged without blur."""
    filter_ = Image.Resampling.LANCZOS if image.width > side else Image.Resampling.NEAREST
    return image.resize((side, round(image.height * side / image.width)), filter_)


def enlarge(image: Image.Image, side: int) -> Image.Image:
    """Enlarge an image by a whole factor to at least `side` pixels width."""
    return scale(image, image.width * max(1, -(-side // image.width)))


def painted(
    image: Image.Image, trace: Sequence[int], grid: tuple[int, int], step: int
) -> Image.Image:
    """The finished image with every cell (of `grid` height × width, row by row) that was written
    after `step` painted grey; -1 leaves nothing."""
    shown = image.copy()
    draw = ImageDraw.Draw(shown)
    for cell, box in zip(trace, cell_boxes(image.size, grid), strict=True):
        if cell > step:
            draw.rectangle(box, fill=GREY, outline=EDGE)
    return shown


def cell_boxes(size: tuple[int, int], grid: tuple[int, int]) -> Iterator[tuple[int, ...]]:
    """Left, top, right and bottom pixel of each cell of an image, row by row."""
    (across, down), (height, width) = size, grid
    for y in range(height):
        for x in range(width):
            end = (x + 1) * across // width - 1, (y + 1) * down // height - 1
            yield (x * across // width, y * down // height, *end)
