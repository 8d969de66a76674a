"""Prompts carry their images from any file, in order, unopened, and only to tasks that see."""

import base64
import json
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow
import pytest
from PIL import Image
from pyarrow.parquet import write_table

from mmrl.config import ConfigError
from mmrl.data.prompts import DataConfig, load_prompts
from mmrl.evaluation import benchmark
from mmrl.evaluation.eval_config import EvalConfig
from mmrl.pretrained.model_config import ModelConfig
from mmrl.types import Prompt
from tests.pictures import png

COLORS = {"red": (255, 0, 0), "green": (0, 128, 0), "blue": (0, 0, 255)}
Q = {"question": "How many?", "answer": "2"}


def plain(color: str) -> bytes:
    return png(Image.new("RGB", (4, 4), color))


def url(color: str) -> str:
    return f"data:image/png;base64,{base64.b64encode(plain(color)).decode()}"


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Prompt files here, images of one colour below `images`."""
    (tmp_path / "images").mkdir()
    for color in COLORS:
        (tmp_path / "images" / f"{color}.png").write_bytes(plain(color))
    return tmp_path


def load(folder: Path, row: Any, name: str = "rows.jsonl", **data: Any) -> Prompt:
    (folder / name).write_text(json.dumps([row] if name.endswith(".json") else row))
    data = {"image_root": str(folder / "images"), **data}
    (prompt,) = load_prompts(str(folder / name), "image_to_text", DataConfig(**data))
    return prompt


def seen(prompt: Prompt) -> list[str]:
    """The colours of a prompt's images."""
    names = {color: name for name, color in COLORS.items()}
    return [names[tuple(np.asarray(image)[0, 0])] for image in prompt.images or ()]


@pytest.mark.parametrize(
    ("row", "colors"),
    [({"image": "red.png"}, ["red"]), ({"images": ["blue.png", "red.png"]}, ["blue", "red"])]
    + [({"image": [url("green"), "red.png"]}, ["green", "red"])]
    + [({"image": {"path": "red.png"}}, ["red"]), ({"image": None}, []), ({"images": []}, [])],
)
@pytest.mark.parametrize("name", ["rows.jsonl", "rows.json"])
def test_a_row_brings_one_image_or_several(
    folder: Path, row: dict, colors: list[str], name: str
) -> None:
    prompt = load(folder, {**Q, **row, "level": 3}, name)
    assert seen(prompt) == colors and (prompt.images is None) == (not colors)
    assert (prompt.text, prompt.answer, prompt.metadata) == ("How many?", "2", {"level": 3})


def stored(color: str | None, path: str | None = None) -> dict[str, Any]:
    return {"bytes": None if color is None else plain(color), "path": path}


def test_a_parquet_holds_the_images_themselves_or_their_paths(folder: Path) -> None:
    rows = [{**Q, "image": stored("red")}, {**Q, "image": stored(None, "blue.png")}, Q]
    write_table(pyarrow.Table.from_pylist(rows), folder / "rows.parquet")
    data = DataConfig(image_root=str(folder / "images"))
    prompts = load_prompts(str(folder / "rows.parquet"), "image_to_text", data)
    assert [seen(prompt) for prompt in prompts] == [["red"], ["blue"], []]
    assert prompts[0].place.endswith("rows.parquet, row 0")


def user(*content: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(content)}


SAY = {"type": "text", "text": "Which?"}
BARE = {"type": "image"}


@pytest.mark.parametrize(
    "part",
    [{"type": "image", "image": "red.png"}, {"type": "image", "path": "red.png"}]
    + [{"type": "image", "url": url("red")}]
    + [{"type": "image_url", "image_url": {"url": url("red")}}],
)
def test_parts_of_messages_bring_their_own_image(folder: Path, part: dict) -> None:
    prompt = load(folder, {"messages": [user(SAY, part), user(part, SAY)]})
    assert seen(prompt) == ["red", "red"] and prompt.text == "Which?"
    assert prompt.messages == [user(SAY, BARE), user(BARE, SAY)]


@pytest.mark.parametrize("task", ["text", "text_to_image"])
def test_a_task_of_words_alone_refuses_images_before_it_opens_any(folder: Path, task: str) -> None:
    for row in ({**Q, "image": "red.png"}, {"messages": [user(SAY, {**BARE, "url": url("red")})]}):
        (folder / "rows.jsonl").write_text(json.dumps(row))
        with pytest.raises(ConfigError, match=f"line 1 has images, and the task {task} takes"):
            load_prompts(str(folder / "rows.jsonl"), task)
    (folder / "rows.jsonl").write_text(json.dumps({**Q, "image": "red.png"}))
    unseen = DataConfig(columns={"unseen": "image"})
    (prompt,) = load_prompts(str(folder / "rows.jsonl"), task, unseen)
    assert prompt.images is None


def test_an_edit_needs_a_source_image(folder: Path) -> None:
    (folder / "rows.jsonl").write_text(json.dumps({"prompt": "make it blue", "before": url("red")}))
    with pytest.raises(ConfigError, match=r"line 1 has no image.*data\.columns, such as"):
        load_prompts(str(folder / "rows.jsonl"), "image_edit")
    named = DataConfig(columns={"image": "before"})
    (prompt,) = load_prompts(str(folder / "rows.jsonl"), "image_edit", named)
    assert (prompt.text, seen(prompt)) == ("make it blue", ["red"])


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({**Q, "image": "none.png"}, "there is no file 'none.png' below"),
        ({**Q, "image": "../rows.jsonl"}, "leads out of"),
        ({**Q, "image": "broken.png"}, "the image cannot be read"),
        ({**Q, "image": "red.png", "images": ["red.png"]}, "has both of images, image; keep one"),
        ({"messages": [user(BARE, SAY)]}, "1 image parts, of which 1 hold no image, and 0 imag"),
    ],
)
def test_an_image_that_cannot_be_shown_is_refused_with_its_row_when_the_file_is_read(
    folder: Path, row: dict, message: str
) -> None:
    (folder / "images" / "broken.png").write_bytes(b"no image")
    with pytest.raises(ConfigError, match=rf"rows\.jsonl, line 1.*{message}"):
        load(folder, row)


def test_an_image_is_opened_when_it_is_taken_and_no_earlier(folder: Path) -> None:
    path = folder / "images" / "red.png"
    prompt = load(folder, {**Q, "image": "red.png"})
    path.write_bytes(plain("blue"))
    assert seen(prompt) == ["blue"] and len(prompt.images or ()) == 1
    path.write_bytes(plain("blue")[:-20])
    with pytest.raises(ConfigError, match=r"rows\.jsonl, line 1: the image cannot be read"):
        seen(prompt)


def test_an_evaluation_of_other_images_is_another_evaluation(folder: Path) -> None:
    config = EvalConfig(
        prompts="rows.jsonl", model=ModelConfig(path="model"), rewards=[{"name": "answer"}]
    )

    def decisive() -> dict[str, Any]:
        return benchmark._decisive(config, [load(folder, {**Q, "image": "red.png"})])

    before = decisive()
    assert decisive() == before
    (folder / "images" / "red.png").write_bytes(plain("blue") + b"more")
    assert {key for key, value in decisive().items() if before[key] != value} == {
        "texts of prompts"
    }
