"""Images: whole ones survive unchanged, all others are refused before they unfold."""

import base64
import struct
import tracemalloc
import zlib
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, PngImagePlugin

from mmrl.rewards.server.files import count_pixels, decode, open_image, open_sample
from mmrl.rewards.server.server_config import Limits
from mmrl.rewards.server.wire import MAX_TEXT, Item, Png, Problem, Refusal, read_request
from mmrl.types import Sample
from tests.pictures import chunk
from tests.pictures import png as saved

GRADIENT = Image.merge("RGB", [Image.linear_gradient("L").resize((20, 16))] * 3)


def png(data: bytes) -> Png:
    return Png(mime="image/png", data=base64.b64encode(data).decode())


def decoded(data: bytes, max_pixels: int = 2**20) -> Any:
    image = open_image(png(data), Limits(max_pixels=max_pixels))
    return image if isinstance(image, Problem) else decode(image)


def opened(data: bytes) -> Image.Image:
    image = decoded(data)
    assert isinstance(image, Image.Image)
    return image


def refused(data: bytes, max_pixels: int = 2**20) -> Problem:
    problem = decoded(data, max_pixels)
    assert isinstance(problem, Problem)
    return problem


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "L", "LA", "P", "1", "I;16"])
def test_an_image_comes_back_as_it_was(mode: str) -> None:
    image = GRADIENT.convert("L").convert(mode) if mode == "I;16" else GRADIENT.convert(mode)
    again = opened(saved(image))
    assert (again.mode, again.size) == (image.mode, image.size)
    assert again.tobytes() == image.tobytes() and again.getpalette() == image.getpalette()
    assert opened(saved(GRADIENT.convert("L"), transparency=7)).info == {"transparency": 7}


def test_every_cut_and_every_changed_byte_is_found() -> None:
    data, draw = saved(GRADIENT), Random(0)
    for at in range(len(data) - 12):  # the last chunk is empty
        changed = bytes([data[at] ^ draw.randint(1, 255)])
        for damaged in (data[:at], data[:at] + changed + data[at + 1 :]):
            refused(damaged)


@pytest.mark.parametrize("text", ["", "****", "AAA", "A\nAA=", "ÄÄÄÄ", "/etc/passwd", "data:;,AA"])
def test_text_that_is_no_base64_is_refused(text: str) -> None:
    problem = open_image(Png(mime="image/png", data=text), Limits())
    assert isinstance(problem, Problem) and "cannot be read" in problem.message


def test_the_size_is_known_before_anything_is_decoded_and_a_second_header_changes_nothing() -> None:
    rest = chunk(b"IDAT", b"") + chunk(b"IEND", b"")
    huge = chunk(b"IHDR", struct.pack(">IIBBBBB", 2**31 - 1, 2**31 - 1, 8, 2, 0, 0, 0))
    assert refused(saved(GRADIENT)[:8] + huge + rest).code == "too_many_pixels"
    large = saved(Image.new("L", (4000, 4000)))  # 16 MB in 16 kB
    tracemalloc.start()
    assert "4000 x 4000" in refused(large, 4000 * 3999).message
    assert "4000 x 4000" in refused(saved(GRADIENT)[:33] + large[8:], 10_000).message
    assert tracemalloc.get_traced_memory()[1] < 2**20
    tracemalloc.stop()
    small = png(saved(GRADIENT))
    limits = Limits(max_pixels=10_000)
    sample = open_sample(Item(id="a", prompt="", images=[small], reference_images=[small]), limits)
    assert isinstance(sample, Sample) and count_pixels(sample) == 640
    for wrong in (png(large), png(b"x")):
        assert isinstance(open_sample(Item(id="a", prompt="", images=[wrong]), limits), Problem)


def test_texts_profiles_and_frames_are_not_part_of_an_image_and_bombs_are_refused() -> None:
    texts = PngImagePlugin.PngInfo()
    texts.add_text("t", "x" * 10_000, zip=True)
    image = opened(saved(GRADIENT, pnginfo=texts, icc_profile=bytes(1000), exif=b"Exif\0\0junk"))
    assert image.info == {} and image.tobytes() == GRADIENT.tobytes()
    frames = saved(GRADIENT, save_all=True, append_images=[Image.new("RGB", (20, 16))] * 3)
    assert b"fdAT" in frames and not getattr(opened(frames), "is_animated", False)
    for name in "ab":
        texts.add_text(name, "x" * 2**24, zip=True)
    for bomb in (saved(GRADIENT, pnginfo=texts), saved(GRADIENT, icc_profile=bytes(2**24))):
        assert "cannot be read" in refused(bomb).message


def test_pixels_that_are_missing_behind_right_checksums_are_found() -> None:
    for content in (zlib.compress(bytes(100)), b"junk", b""):
        broken = saved(GRADIENT)[:33] + chunk(b"IDAT", content) + chunk(b"IEND", b"")
        assert "cannot be read" in refused(broken).message


def test_a_text_that_is_too_long_fails_alone() -> None:
    for length, code in ((MAX_TEXT, ""), (MAX_TEXT + 1, "too_long")):
        for prompt, text in ((length, 1), (1, length)):
            built = open_sample(Item(id="a", prompt="x" * prompt, completion="x" * text), Limits())
            assert (built.code if isinstance(built, Problem) else "") == code


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_no_bytes_do_anything_but_give_a_request_or_be_refused(data: st.DataObject) -> None:
    right = b'{"id": "r", "reward": "m", "items": [{"id": "a", "prompt": "p", "completion": "c"}]}'
    at, drop = data.draw(st.integers(0, len(right))), data.draw(st.integers(0, 5))
    junk = data.draw(st.binary(max_size=20) | st.sampled_from([b"NaN", b"[" * 5000, b"1e999"]))
    try:
        read_request(right[:at] + junk + right[at + drop :], 4)
    except Refusal as refusal:
        assert refusal.status in (400, 422)
