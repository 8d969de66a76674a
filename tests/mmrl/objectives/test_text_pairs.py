"""Rows with pictures, in every form that public data sets have, and rows that cannot be read."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from mmrl.config import ConfigError
from mmrl.objectives.text import Completions
from mmrl.objectives.text_examples import Example
from tests.mmrl.objectives.completions import write_rows
from tests.mmrl.objectives.image_completions import ASKED, png, seeing, url


def same(one: Example, other: Example) -> bool:
    pixels = [[list(image.tobytes()) for image in example.images] for example in (one, other)]
    tensors = (("prompt", "completion", "order"), ("cuts", "rows", "trained", "padding"))
    return (
        all(torch.equal(getattr(one, name), getattr(other, name)) for name in tensors[0])
        and all(getattr(one, name) == getattr(other, name) for name in tensors[1])
        and pixels[0] == pixels[1]
    )


def example(folder: Path, row: Any, name: str = "rows.jsonl", **changes: Any) -> Example:
    path = folder / name
    path.write_text(json.dumps([row]) if name.endswith(".json") else json.dumps(row))
    [only] = seeing(path, **changes).source.rows.items
    return only


def turn(content: Any, role: str = "user") -> dict[str, Any]:
    return {"role": role, "content": content}


def system() -> dict[str, Any]:
    from mmrl.models.layouts.image_chat import SYSTEM

    return turn(SYSTEM, "system")


def test_every_form_of_a_row_is_the_same_example(tmp_path: Path) -> None:
    (tmp_path / "pictures").mkdir()
    (tmp_path / "pictures" / "a.png").write_bytes(png(1))
    question, answer = ASKED[0], "3"
    wanted = example(tmp_path, {"question": question, "answer": answer, "image": url(1)})
    assert len(wanted.images) == 1 and wanted.rows > 0
    parts = [{"type": "image"}, {"type": "text", "text": question}]
    own = [{"type": "image", "url": url(1)}, parts[1]]
    said = turn(f" {answer}\n", "assistant")
    messages = [
        {"messages": [system(), turn(parts), said], "images": [url(1)]},
        {"messages": [system(), turn(own), said]},
        {"messages": [system(), turn(question), said], "image": "pictures/a.png"},
        {"messages": [system(), turn(f"<image>\n{question}"), said], "image": url(1)},
        {"question": f"<image>\n{question}", "answer": answer, "image": url(1)},
        {"question": question, "answer": "3", "image": "pictures/a.png"},
        {"messages": [system(), turn(parts)], "answer": answer, "image": url(1)},
    ]
    for row in messages:
        assert same(example(tmp_path, row), wanted), row
    below = {"question": question, "answer": answer, "image": "a.png"}
    root = str(tmp_path / "pictures")
    assert same(example(tmp_path, below, image_root=root), wanted)


def shown(objective: Completions) -> list[int]:
    return [len(example.images) for example in objective.source.rows.items]


@pytest.mark.parametrize("marked", [False, True])
def test_an_earlier_answer_sees_the_pictures_shown_until_then(tmp_path: Path, marked: bool) -> None:
    part = {"type": "image"}
    asked: list[Any] = ["one", [part, {"type": "text", "text": "two"}], [part]]
    if marked:
        asked = ["one", "<image>\ntwo", "three <image>"]
    turns = [t for words in asked for t in (turn(words), turn("yes", "assistant"))]
    path = write_rows(tmp_path / "rows.jsonl", [{"messages": turns, "images": [url(0), url(1)]}])
    objective = seeing(path, turns="all")
    assert shown(objective) == [0, 1, 2]
    assert shown(seeing(path)) == [2]
    last = objective.source.rows.items[-1]
    assert [image.size for image in last.images] == [(8, 8), (20, 9)]
    assert len(last.cuts) == 2 and last.cuts[0] < last.cuts[1]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"question": "<image> <image>", "answer": "3"}, "has 1 images and 2 marks"),
        (
            {"messages": [turn("a"), turn([{"type": "image"}], "assistant")]},
            "the last answer holds an image",
        ),
    ],
)
def test_rows_that_are_no_examples_are_named_with_their_line(
    tmp_path: Path, row: dict[str, Any], message: str
) -> None:
    good = {"question": "a", "answer": "b", "image": url(0)}
    path = write_rows(tmp_path / "rows.jsonl", [good, {"image": url(0), **row}])
    with pytest.raises(ConfigError, match=f"line 2.*{message}"):
        seeing(path)
