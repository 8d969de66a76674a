"""Images of parquet files: opened as those of prompts are, or refused with their row."""

import io
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet as pq
import pytest
import torch
from datasets import Dataset, Features
from datasets import Image as ImageFeature
from PIL import ExifTags, Image
from torch import Tensor

from mmrl.config import ConfigError
from mmrl.data.lazy_images import MAX_PIXELS
from scripts.miniature.columns import load_images

RED, WHITE = (1.0, -1.0, -1.0), (1.0, 1.0, 1.0)


def saved(image: Image.Image, form: str = "PNG", **options: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, form, **options)
    return buffer.getvalue()


def written(folder: Path, values: list[bytes], plain: bool = False) -> str:
    """A parquet with a column of images, as `datasets` or, `plain`, as others write it."""
    path = folder / "pairs.parquet"
    if plain:
        pq.write_table(pyarrow.table({"image": values}), path)
        return str(path)
    rows = {"image": [{"bytes": value, "path": None} for value in values]}
    Dataset.from_dict(rows, features=Features({"image": ImageFeature()})).to_parquet(str(path))
    return str(path)


def colours(pixels: Tensor) -> list[tuple[float, ...]]:
    return [tuple(corner.tolist()) for corner in pixels[:, :, 0, 0]]


@pytest.mark.parametrize("plain", [False, True])
def test_whatever_wrote_an_image_it_is_shown_right(tmp_path: Path, plain: bool) -> None:
    grey = Image.fromarray(np.full((8, 8), 65535, np.uint16))
    sideways = Image.new("RGB", (8, 4), "white")
    sideways.paste("red", (0, 0, 4, 4))  # on the right of what is shown upside down
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = 3
    values = [
        saved(Image.new("CMYK", (8, 8), (0, 255, 255, 0)), "TIFF"),
        saved(grey),
        saved(Image.new("RGBA", (8, 8), (0, 0, 0, 0))),
        saved(sideways, exif=exif),
        saved(Image.new("P", (8, 8), 0)),
    ]
    images = load_images(written(tmp_path, values, plain), "image", 4)
    black = (-1.0, -1.0, -1.0)
    assert colours(images.pixels([0, 1, 2, 3, 4])) == [RED, WHITE, WHITE, WHITE, black]
    assert torch.equal(images.pixels([3, 0])[1], images.pixels([0])[0])


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (saved(Image.new("RGB", (64, 64), "red"))[:-30], "cannot be read"),
        (b"no image", "cannot be read"),
        (saved(Image.new("1", (2**13 + 1, 2**13))), f"larger than the {MAX_PIXELS:,} pixels"),
        (None, "has no image in 'image'"),
    ],
    ids=["cut-off", "text", "bomb", "null"],
)
def test_an_image_that_cannot_be_read_is_refused_with_its_row(
    tmp_path: Path, value: bytes, said: str
) -> None:
    fine = saved(Image.new("RGB", (8, 8), "red"))
    path = written(tmp_path, [fine, value], plain=True)
    with pytest.raises(ConfigError, match=rf"pairs\.parquet, row 1.*{said}"):
        load_images(path, "image", 4).pixels([0, 1])


def test_a_path_in_a_row_leads_nowhere_but_below_the_folder_of_the_file(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    for place in (tmp_path, folder):
        Image.new("RGB", (8, 8), "red").save(place / "red.png")
    rows = [{"bytes": None, "path": name} for name in ("red.png", "../red.png")]
    kind = pyarrow.struct({"bytes": pyarrow.binary(), "path": pyarrow.string()})
    pq.write_table(pyarrow.table({"image": pyarrow.array(rows, kind)}), folder / "x.parquet")
    with pytest.raises(ConfigError, match=r"row 1: '\.\./red\.png' leads out of"):
        load_images(str(folder), "image", 4)
