"""Rows of files, archives and folders, read whole and as a stream."""

import io
import json
import tarfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from mmrl.config import ConfigError
from mmrl.data.rows import read_rows
from mmrl.data.stream import RowStream
from tests.pictures import png


def plain(red: int) -> bytes:
    return png(Image.new("RGB", (8, 8), (red, 0, 0)))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twenty captions in JSONL, in three archives, and in an ImageFolder."""
    root = tmp_path_factory.mktemp("rows")
    for name in ("lines", "tars", "images"):
        (root / name).mkdir()
    captions = [(n, f"caption {n}") for n in range(20)]
    for shard in range(3):
        mine = captions[shard::3]
        text = "".join(json.dumps({"txt": words}) + "\n" for _, words in mine)
        (root / "lines" / f"{shard}.jsonl").write_text(text)
        with tarfile.open(root / "tars" / f"{shard}.tar", "w") as archive:
            for n, words in mine:
                for suffix, data in {"png": plain(n), "txt": words.encode()}.items():
                    info = tarfile.TarInfo(f"{n:03}.{suffix}")
                    info.size = len(data)
                    archive.addfile(info, io.BytesIO(data))
    for n, _ in captions:
        (root / "images" / f"{n:03}.png").write_bytes(plain(n))
    named = [{"file_name": f"{n:03}.png", "txt": words} for n, words in captions]
    text = "".join(json.dumps(row) + "\n" for row in named)
    (root / "images" / "metadata.jsonl").write_text(text)
    return root


SOURCES = {"jsonl": "lines/*.jsonl", "tar": "tars/*.tar", "folder": "images"}


def stream_of(source: str, size: int = 6, seed: int = 0) -> RowStream[str]:
    def read(place: str, row: Any) -> list[str]:
        number = int(row["txt"].split()[1])
        return [row["txt"]] * (0 if number % 5 == 0 else 1 + number % 2)

    return RowStream((source, None, None), read, seed, size)


EPOCH = Counter({f"caption {n}": 1 + n % 2 for n in range(20) if n % 5})


@pytest.mark.parametrize("kind", SOURCES)
def test_a_stream_has_every_item_once_an_epoch_in_an_order_of_its_seed(
    kind: str, folder: Path
) -> None:
    source, count = str(folder / SOURCES[kind]), EPOCH.total()
    assert sorted(row["txt"] for _, row in read_rows(source)) == sorted(
        f"caption {n}" for n in range(20)
    )
    taken = stream_of(source).take(range(3 * count))
    for epoch in range(3):
        assert Counter(taken[epoch * count : (epoch + 1) * count]) == EPOCH
    assert taken[:count] != taken[count : 2 * count]
    assert taken == stream_of(source).take(range(3 * count))
    assert taken[:count] != stream_of(source, seed=1).take(range(count))


@pytest.mark.parametrize("kind", SOURCES)
def test_a_stream_resumes_exactly_at_every_position(kind: str, folder: Path) -> None:
    source, count = str(folder / SOURCES[kind]), EPOCH.total() + 9
    taken, running = stream_of(source).take(range(count)), stream_of(source)
    for position in range(0, count, 1 if kind == "jsonl" else 5):
        assert running.take([position]) == [taken[position]]
        again = stream_of(source)
        again.load_state_dict(json.loads(json.dumps(running.state_dict())))
        assert again.take(range(position + 1, count)) == taken[position + 1 :]
        assert again.take([0]) == taken[:1]  # what is behind is read again


def test_a_stream_without_an_item_ends_with_an_error(folder: Path) -> None:
    empty = RowStream((str(folder / "lines/*.jsonl"), None, None), lambda *_: [], 0, 4)
    with pytest.raises(ConfigError, match="holds nothing to learn"):
        empty.take([0])
