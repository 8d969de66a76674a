"""Images with captions, arranged on one page."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from PIL import Image, ImageDraw, ImageFont

GAP = 6
FONT_SIZE = 12
LINE = 15
WHITE, BLACK = (255, 255, 255), (32, 32, 32)


@dataclass
class Cell:
    """An image and the lines below it, each with its colour."""

    image: Image.Image
    lines: Sequence[tuple[str, tuple[int, int, int]]] = ()


def page(cells: Sequence[Cell], columns: int) -> Image.Image:
    """Arrange cells in rows on white; images of one size, captions wrapped to their width."""
    width, height = cells[0].image.size
    captions = [
        [(line, c) for text, c in cell.lines for line in _lines(text, width)] for cell in cells
    ]
    pitch = width + GAP, height + LINE * max(map(len, captions)) + GAP
    rows, across = -(-len(cells) // columns), min(columns, len(cells))
    sheet = Image.new("RGB", (across * pitch[0] + GAP, rows * pitch[1] + GAP), WHITE)
    for n, (cell, lines) in enumerate(zip(cells, captions, strict=True)):
        left, top = GAP + n % columns * pitch[0], GAP + n // columns * pitch[1]
        sheet.paste(cell.image, (left, top))
        _write(sheet, lines, left, top + height)
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
    lines = [(line, BLACK) for line in _lines(text, width - 2 * GAP)]
    label = Image.new("RGB", (width, len(lines) * LINE + GAP), WHITE)
    _write(label, lines, GAP, GAP)
    return label


def _write(sheet: Image.Image, lines: Sequence[tuple[str, Any]], left: int, top: int) -> None:
    draw, font = ImageDraw.Draw(sheet), ImageFont.load_default(FONT_SIZE)
    for n, (text, color) in enumerate(lines):
        draw.text((left, top + n * LINE), text, color, font)


def scale(image: Image.Image, side: int) -> Image.Image:
    """Scale an image to `side` pixels width; small ones are enlarged without blur."""
    filter_ = Image.Resampling.LANCZOS if image.width > side else Image.Resampling.NEAREST
    return image.resize((side, round(image.height * side / image.width)), filter_)


def enlarge(image: Image.Image, side: int) -> Image.Image:
    """Enlarge an image by a whole factor to at least `side` pixels width."""
    return scale(image, image.width * max(1, -(-side // image.width)))


def _lines(text: str, width: int) -> list[str]:
    """Split a text into lines that fit; a word longer than a line stays whole."""
    font = ImageFont.load_default(FONT_SIZE)
    lines: list[str] = []
    for word in text.split():
        longer = f"{lines[-1]} {word}" if lines else word
        if lines and font.getlength(longer) <= width:
            lines[-1] = longer
        else:
            lines.append(word)
    return lines
