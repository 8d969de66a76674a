"""A row means an image below its root folder, or brings it along; no row leads anywhere else."""

import base64
from pathlib import Path
from typing import Any

import pytest

from mmrl.config import ConfigError
from mmrl.data.images import LazyImage, find_image


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
def test_what_stands_for_no_image_is_refused_with_its_row(
    root: Path, value: Any, message: str
) -> None:
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
