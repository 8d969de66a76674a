"""Rows of files, archives, folders and patterns, read whole and as a stream."""

import io
import json
import tarfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from mmrl.config import ConfigError
from mmrl.data.row_stream import RowStream
from mmrl.data.rows import read_rows


def png(red: int) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (8, 8), (red, 0, 0)).save(buffer, "PNG")
    return buffer.getvalue()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twenty captions in JSONL, in three archives, beside images, and in an ImageFolder."""
    root = tmp_path_factory.mktemp("rows")
    for name in ("lines", "tars", "beside", "metadata"):
        (root / name).mkdir()
    rows = [{"text": f"caption {n}", "number": n} for n in range(20)]
    for shard in range(3):
        mine = rows[shard::3]
        text = "".join(json.dumps(row) + "\n" for row in mine)
        (root / "lines" / f"{shard}.jsonl").write_text(text)
        with tarfile.open(root / "tars" / f"{shard}.tar", "w") as archive:
            for row in mine:
                fields = json.dumps({"number": row["number"]}).encode()
                parts = {"png": png(row["number"]), "txt": row["text"].encode(), "json": fields}
                for suffix, data in parts.items():
                    info = tarfile.TarInfo(f"{row['number']:03}.{suffix}")
                    info.size = len(data)
                    archive.addfile(info, io.BytesIO(data))
    for row in rows:
        for name in ("beside", "metadata"):
            (root / name / f"{row['number']:03}.png").write_bytes(png(row["number"]))
        (root / "beside" / f"{row['number']:03}.txt").write_text(row["text"] + "\n")
    named = [{"file_name": f"{n:03}.png", "text": f"caption {n}"} for n in range(20)]
    text = "".join(json.dumps(row) + "\n" for row in named)
    (root / "metadata" / "metadata.jsonl").write_text(text)
    return root


SOURCES = {"jsonl": "lines/*.jsonl", "tar": "tars/*.tar", "txt": "beside", "folder": "metadata"}


def stream_of(source: str, size: int = 6, seed: int = 0) -> RowStream[str]:
    def read(place: str, row: Any) -> list[str]:
        number = int(row["text"].split()[1])
        return [row["text"]] * (0 if number % 5 == 0 else 1 + number % 2)

    return RowStream((source, None, None), read, seed, size)


EPOCH = Counter({f"caption {n}": 1 + n % 2 for n in range(20) if n % 5})


@pytest.mark.parametrize("kind", SOURCES)
def test_every_source_is_read_whole(kind: str, folder: Path) -> None:
    rows = [row for _, row in read_rows(str(folder / SOURCES[kind]))]
    assert sorted(row["text"] for row in rows) == sorted(f"caption {n}" for n in range(20))
    assert ("image" in rows[0]) == (kind != "jsonl")
    assert ("number" in rows[0]) == (kind in ("jsonl", "tar"))


@pytest.mark.parametrize("kind", SOURCES)
def test_a_stream_has_every_item_once_an_epoch_in_an_order_of_its_seed(
    kind: str, folder: Path
) -> None:
    source, count = str(folder / SOURCES[kind]), EPOCH.total()
    taken = stream_of(source).take(range(3 * count))
    for epoch in range(3):
        assert Counter(taken[epoch * count : (epoch + 1) * count]) == EPOCH
    assert taken[:count] != taken[count : 2 * count]
    assert taken == stream_of(source).take(range(3 * count))
    assert taken[:count] != stream_of(source, seed=1).take(range(count))


@pytest.mark.parametrize("kind", ["jsonl", "tar", pytest.param("txt", marks=pytest.mark.slow)])
def test_a_stream_resumes_exactly_at_every_position(kind: str, folder: Path) -> None:
    source, count = str(folder / SOURCES[kind]), EPOCH.total() + 9
    taken, running = stream_of(source).take(range(count)), stream_of(source)
    for position in range(0, count, 1 if kind == "jsonl" else 5):
        assert running.take([position]) == [taken[position]]
        again = stream_of(source)
        again.load_state_dict(json.loads(json.dumps(running.state_dict())))
        assert again.take(range(position + 1, count)) == taken[position + 1 :]


def test_a_json_list_is_streamed(tmp_path: Path) -> None:
    rows = [{"text": f"caption {n}"} for n in range(1, 5)]
    (tmp_path / "rows.json").write_text(json.dumps(rows))
    taken = stream_of(str(tmp_path / "rows.json")).take(range(6))
    assert sorted(set(taken)) == [row["text"] for row in rows]


def test_processes_take_neighbouring_stretches_of_one_stream(folder: Path) -> None:
    source = str(folder / SOURCES["jsonl"])
    whole = stream_of(source).take(range(24))
    pair = [stream_of(source), stream_of(source)]
    parts = [pair[n % 2].take(range(4 * n, 4 * n + 4)) for n in range(6)]
    assert [item for part in parts for item in part] == whole


def test_a_stream_holds_one_window_in_memory(folder: Path) -> None:
    stream = stream_of(str(folder / SOURCES["jsonl"]), size=4)
    for position in range(40):
        stream.take([position])
        assert len(stream.items) <= 2 * 4


def test_a_stream_without_an_item_ends_with_an_error(folder: Path) -> None:
    empty = RowStream((str(folder / "lines/*.jsonl"), None, None), lambda *_: [], 0, 4)
    with pytest.raises(ConfigError, match="holds nothing to learn"):
        empty.take([0])


def test_an_image_without_a_caption_is_named(folder: Path, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.png").write_bytes(png(0))
    (tmp_path / "a.json").write_text('{"text": "one"}')
    with pytest.raises(ConfigError, match=r"b\.png' has no caption: b\.txt or b\.json"):
        list(read_rows(str(tmp_path)))
    (tmp_path / "b.json").write_text("[1]")
    with pytest.raises(ConfigError, match=r"b\.json' must hold a JSON object"):
        list(read_rows(str(tmp_path)))
