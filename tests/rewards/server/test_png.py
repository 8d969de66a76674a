"""Images: whole ones survive unchanged, all others are refused before they unfold."""

import base64
import io
import struct
import tracemalloc
import zlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, PngImagePlugin

from mmrl.rewards.server.png import ImageError, read_png

GRADIENT = Image.merge("RGB", [Image.linear_gradient("L").resize((20, 16))] * 3)


def saved(image: Image.Image, **options: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, "PNG", **options)
    return buffer.getvalue()


def opened(data: bytes, max_pixels: int = 2**20) -> Image.Image:
    return read_png(base64.b64encode(data).decode(), max_pixels).decode()


def chunk(kind: bytes, content: bytes) -> bytes:
    body = kind + content
    return struct.pack(">I", len(content)) + body + struct.pack(">I", zlib.crc32(body))


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "L", "LA", "P", "1", "I;16"])
def test_an_image_comes_back_as_it_was(mode: str) -> None:
    image = GRADIENT.convert("L").convert(mode) if mode == "I;16" else GRADIENT.convert(mode)
    again = opened(saved(image))
    assert (again.mode, again.size) == (image.mode, image.size)
    assert again.tobytes() == image.tobytes() and again.getpalette() == image.getpalette()


def test_a_transparent_colour_comes_back() -> None:
    image = opened(saved(GRADIENT.convert("L"), transparency=7))
    assert image.info["transparency"] == 7


def test_every_cut_is_found() -> None:
    data = saved(GRADIENT)
    for length in range(len(data)):
        with pytest.raises(ImageError, match="cannot be read"):
            opened(data[:length])


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_a_changed_byte_is_found(data: st.DataObject) -> None:
    original = saved(GRADIENT)
    at = data.draw(st.integers(0, len(original) - 1))
    value = data.draw(st.integers(0, 255).filter(lambda v: v != original[at]))
    with pytest.raises(ImageError):
        opened(original[:at] + bytes([value]) + original[at + 1 :])


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=300), st.booleans())
def test_anything_else_is_refused_by_name(junk: bytes, with_signature: bool) -> None:
    with pytest.raises(ImageError):
        opened((b"\x89PNG\r\n\x1a\n" if with_signature else b"") + junk)


@pytest.mark.parametrize("text", ["", "****", "AAA", "A\nAA=", "ÄÄÄÄ", "/etc/passwd", "data:;,AA"])
def test_text_that_is_no_base64_is_refused(text: str) -> None:
    with pytest.raises(ImageError, match="cannot be read"):
        read_png(text, 100)


def test_the_size_is_known_before_anything_is_decoded() -> None:
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", 2**31 - 1, 2**31 - 1, 8, 2, 0, 0, 0))
    bomb = saved(GRADIENT)[:8] + header + chunk(b"IDAT", b"") + chunk(b"IEND", b"")
    with pytest.raises(ImageError) as error:
        opened(bomb)
    assert error.value.code == "too_many_pixels"
    data = saved(Image.new("L", (4000, 4000)))  # 16 MB in 16 kB
    tracemalloc.start()
    with pytest.raises(ImageError, match="4000 x 4000"):
        opened(data, 4000 * 3999)
    assert tracemalloc.get_traced_memory()[1] < 2**20
    tracemalloc.stop()


def test_packed_texts_profiles_and_frames_are_never_unfolded() -> None:
    packed = PngImagePlugin.PngInfo()
    for n in range(20):
        packed.add_text(f"t{n}", "x" * 1_000_000, zip=True)
    data = saved(GRADIENT, pnginfo=packed, icc_profile=bytes(1_000_000), exif=b"Exif\0\0junk")
    image = opened(data)
    assert image.info == {} and image.tobytes() == GRADIENT.tobytes()
    frames = saved(GRADIENT, save_all=True, append_images=[Image.new("RGB", (20, 16))] * 3)
    assert b"fdAT" in frames and not getattr(opened(frames), "is_animated", False)


def test_a_file_of_nothing_but_chunks_is_refused() -> None:
    data = saved(GRADIENT)
    with pytest.raises(ImageError, match="chunks"):
        opened(data[:33] + chunk(b"IDAT", b"") * 20_000 + data[33:])


def test_pixels_that_are_missing_behind_right_checksums_are_found(tmp_path: Path) -> None:
    header = saved(GRADIENT)[:33]
    pixels = zlib.compress(zlib.decompress(zlib.compress(bytes(100))))
    for content in (pixels, b"junk", b""):
        with pytest.raises(ImageError, match="decoded"):
            opened(header + chunk(b"IDAT", content) + chunk(b"IEND", b""))
