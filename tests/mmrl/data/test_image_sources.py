"""A row means an image below its root folder, or brings it along; no row leads anywhere else."""

import base64
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from mmrl.config import ConfigError
from mmrl.data.images import MAX_BYTES, LazyImage, LazyImages, find_image
from tests.pictures import chunk
from tests.pictures import png as saved


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder with images beside a secret."""
    (tmp_path / "secret.png").write_bytes(b"secret")
    root = tmp_path / "images"
    (root / "sub").mkdir(parents=True)
    (root / "sub" / "a b.png").write_bytes(b"a")
    return root


@pytest.mark.parametrize("name", ["sub/a b.png", "./sub/../sub/a b.png", "{root}/sub/a b.png"])
def test_a_path_below_the_root_is_found_however_it_is_written(root: Path, name: str) -> None:
    image = find_image(name.format(root=root), root, "line 3")
    assert image == LazyImage(root / "sub" / "a b.png") and image.place == "line 3"


@pytest.mark.parametrize(
    "name",
    ["../secret.png", "sub/../../secret.png", "{root}/../secret.png", "/etc/passwd", "link"]
    + ["folder_link/secret.png"],
)
def test_no_path_leads_out_of_the_root(root: Path, name: str) -> None:
    (root / "link").symlink_to(root.parent / "secret.png")
    (root / "folder_link").symlink_to(root.parent)
    with pytest.raises(ConfigError, match=r"^line 3: .* leads out of .*data\.image_root"):
        find_image(name.format(root=root), root, "line 3")


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("sub/none.png", "there is no file 'sub/none.png' below .*set data.image_root"),
        ("a\0b", "is no path of an image"),
        ("x" * 5000, "'xxx.* is no path of an image"),
        (
            "https://example.org/x.png",
            "are not downloaded, and 'https://example.org/x.png' is an add",
        ),
        ("data:text/plain;base64,AAAA", "begins like data:image/png;base64,"),
        ("data:image/png;base64,A*==", "is no image"),
        ({"bytes": None, "path": None}, "is no image"),
    ],
)
def test_what_is_no_image_is_refused_with_its_row(root: Path, value: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=f"^line 3: .*{message}"):
        find_image(value, root, "line 3")


@pytest.mark.parametrize(
    "value",
    [
        b"abc",
        {"bytes": b"abc", "path": "../ignored.png"},
        {"bytes": b"abc"},
        *(
            f"data:{kind};base64,{base64.b64encode(b'abc').decode()}"
            for kind in ("image/png", "image/svg+xml;charset=utf-8", "image")
        ),
    ],
)
def test_bytes_come_along_in_every_form_that_data_sets_have(value: Any) -> None:
    assert find_image(value, None, "") == LazyImage(b"abc")


RED, BLUE, WHITE = (255, 0, 0), (0, 0, 255), (255, 255, 255)


def opened(data: bytes) -> np.ndarray:
    image = LazyImage(data, "rows.jsonl, line 3").open()
    assert image.mode == "RGB"
    return np.asarray(image)


def halves(mode: str = "RGB", size: tuple[int, int] = (32, 16)) -> Image.Image:
    """Left red, right blue."""
    image = Image.new("RGB", size, BLUE)
    image.paste(RED, (0, 0, size[0] // 2, size[1]))
    return image.convert(mode)


@pytest.mark.parametrize(
    ("form", "options"),
    [("PNG", {}), ("JPEG", {"quality": 95, "subsampling": 0}), ("GIF", {})]
    + [("WEBP", {"lossless": True}), ("BMP", {}), ("TIFF", {"compression": "tiff_lzw"})],
)
def test_every_format_shows_the_same_from_files_and_bytes(
    tmp_path: Path, form: str, options: dict
) -> None:
    data = saved(halves(), form, **options)
    (tmp_path / "x").write_bytes(data)
    for source in (data, tmp_path / "x"):
        found = np.asarray(LazyImage(source, "").open()).astype(int)
        assert np.abs(found - np.asarray(halves()).astype(int)).max() <= 3


@pytest.mark.parametrize("orientation", [1, 3, 6])
@pytest.mark.parametrize("form", ["JPEG", "PNG", "TIFF"])
def test_a_rotated_photograph_stands_upright(orientation: int, form: str) -> None:
    upright = Image.new("RGB", (16, 24), WHITE)
    upright.paste(RED, (0, 0, 8, 12))
    upright.paste(BLUE, (8, 0, 16, 12))
    stored = upright.rotate({1: 0, 3: 180, 6: 90}[orientation], expand=True)
    exif = Image.Exif()
    exif[0x0112] = orientation
    options = {"quality": 100, "subsampling": 0} if form == "JPEG" else {}
    data = saved(stored, form, exif=exif, **options)
    assert np.abs(opened(data).astype(int) - np.asarray(upright)).max() <= 8
    assert LazyImages([LazyImage(data)]).sizes == [upright.size]


def png(width: int, height: int, bits: int, color: int, rows: bytes, *more: bytes) -> bytes:
    """A PNG by hand: Pillow writes no colour of 16 bits and no lies."""
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, bits, color, 0, 0, 0))
    body = chunk(b"IDAT", zlib.compress(rows))
    return b"\x89PNG\r\n\x1a\n" + head + b"".join(more) + body + chunk(b"IEND", b"")


def noise() -> Image.Image:
    values = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    return Image.fromarray(values)


@pytest.mark.parametrize("form", ["PNG", "JPEG", "GIF", "WEBP", "BMP", "TIFF"])
@pytest.mark.parametrize("share", [0.0, 0.02, 0.5, 0.9])
def test_a_file_that_was_cut_off_is_refused_with_its_row(form: str, share: float) -> None:
    data = saved(noise(), form)
    with pytest.raises(ConfigError, match=r"rows\.jsonl, line 3: the image cannot be read"):
        opened(data[: int(share * len(data))])


def test_a_png_is_refused_whichever_of_its_bytes_is_wrong() -> None:
    data = saved(noise())
    for place in range(50, len(data) - 12, 997):
        broken = data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]
        with pytest.raises(ConfigError, match="line 3: the image cannot be read"):
            opened(broken)


@pytest.mark.parametrize("side", [8_200, 14_000, 60_000])
@pytest.mark.parametrize("limit", [None, 1, 10**9])
def test_a_small_file_with_a_huge_image_is_refused_unopened_whatever_pillow_allows(
    monkeypatch: pytest.MonkeyPatch, side: int, limit: int | None
) -> None:
    bomb = LazyImage(png(side, side, 1, 0, bytes(100)), "rows.jsonl, line 3")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", limit)
    for ask in (bomb.open, lambda: bomb.size):
        with pytest.raises(ConfigError, match=r"line 3: the image .*67,108,864 pixels"):
            ask()


def test_a_huge_file_is_refused_before_it_is_read(tmp_path: Path) -> None:
    with open(tmp_path / "x.png", "wb") as file:
        file.truncate(MAX_BYTES + 1)
    with pytest.raises(ConfigError, match=r"line 3: the image has 67,108,865 bytes"):
        LazyImage(tmp_path / "x.png", "line 3").open()


def test_sixteen_bits_are_scaled_and_what_is_transparent_shows_white() -> None:
    ramp = (np.arange(256, dtype=np.uint32) * 257).astype(np.uint16).reshape(16, 16)
    for form in ("PNG", "TIFF"):
        found = opened(saved(Image.fromarray(ramp), form))
        assert (found == np.arange(256).reshape(16, 16, 1)).all()
    half = Image.new("RGBA", (4, 4), (255, 0, 0, 128))
    assert opened(saved(half))[0, 0].tolist() == [255, 127, 127]
    found = opened(saved(halves(), transparency=RED))
    assert found[0, [0, -1]].tolist() == [list(WHITE), list(BLUE)]
