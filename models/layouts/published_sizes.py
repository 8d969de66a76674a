"""Sizes that Lumina-DiMOO fits images of prompts to: rectangles of about the same area.

The public code halves large images before it resizes them, and crops at a random place; here an
image is resized once and its middle kept.
"""

from functools import cache

LONGEST = 4
"""Largest ratio of the sides."""


@cache
def list_sizes(cells: int) -> list[tuple[int, int]]:
    """Widths and heights in cells of rectangles of at most `cells`, of each width the heights that
    leave no room for a wider one."""
    return [
        (width, height)
        for width in range(cells, 0, -1)
        for height in range(max(1, cells // (width + 1)), cells // width + 1)
        if max(width, height) <= LONGEST * min(width, height)
    ]


def fit_size(size: tuple[int, int], cells: int) -> tuple[int, int]:
    """The listed width and height whose aspect ratio is nearest that of an image of `size`; of
    equal ones the largest."""

    def likeness(listed: tuple[int, int]) -> float:
        ratios = [own / given for own, given in zip(listed, size, strict=True)]
        return min(ratios) / max(ratios)

    return max(list_sizes(cells), key=lambda listed: (likeness(listed), listed))
