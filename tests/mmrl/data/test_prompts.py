import json
import tarfile
from collections import Counter
from pathlib import Path
from typing import Any

import datasets
import pytest
from datasets import Dataset
from huggingface_hub import constants
from PIL import Image

from mmrl.config import ConfigError, NotHereError
from mmrl.data.prompts import DataConfig, load_prompts
from mmrl.data.rows import read_rows
from mmrl.data.stream import RowStream
from mmrl.types import Prompt
from tests.pictures import add_file, png

SHAPES = Path(__file__).resolve().parents[3] / "datasets" / "shapes"


def _load(folder: Path, text: str, name: str = "rows.jsonl", **data: Any) -> list[Prompt]:
    (folder / name).write_text(text, encoding="utf-8")
    return load_prompts(str(folder / name), "text_to_image", DataConfig(**data))


def test_every_line_of_a_text_file_is_a_prompt(tmp_path: Path) -> None:
    text = 'a red circle\n\n  two {rings}, "blue"\t\r\n\u2028\n'
    prompts = _load(tmp_path, text, "wishes.txt", template="Draw {prompt}.")
    assert [p.text for p in prompts] == ["Draw a red circle.", 'Draw two {rings}, "blue".']
    assert [prompt.id for prompt in prompts] == ["wishes-0", "wishes-1"]
    assert prompts[1].place.endswith("wishes.txt, line 3") and prompts[1].metadata == {}


@pytest.mark.parametrize("name", ["rows.xlsx", "rows.arrow", "rows"])
def test_a_file_of_a_type_that_is_not_read_says_which_are(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match=r"is a file .*; what is read is \.jsonl, .*\.parquet"):
        _load(tmp_path, "x", name)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"prompt": "x"}\n{"prompt": ', r"rows\.jsonl, line 2 is not JSON"),
        ('{"prompt": "x"}\n\n["x"]', r"line 3 is not a mapping"),
        ('{"problem": "x"}', r"'prompt', 'question', 'text'; it has \['problem'\]"),
        ('{"prompt": [{"role": "system", "content": "x"}]}', "must end with one of the user"),
        ("[" * 200_000, "line 1 is not JSON: maximum recursion"),
        ("", "holds no prompts"),
        (
            '{"prompt": "a", "id": 7}\n{"prompt": "b"}\n{"prompt": "c", "id": "7"}\n',
            r"rows\.jsonl, line 3 has the id '7' of .*line 1",
        ),
    ],
)
def test_a_broken_row_is_refused_with_its_place(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        _load(tmp_path, text)


def test_files_that_cannot_be_read_are_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"'nowhere\.jsonl' is not a file"):
        load_prompts("nowhere.jsonl", "text_to_image")
    with pytest.raises(ConfigError, match="must hold a JSON list"):
        _load(tmp_path, '{"prompt": "x"}', "rows.json")
    (tmp_path / "latin.jsonl").write_bytes(b'{"prompt": "caf\xe9"}')
    with pytest.raises(ConfigError, match=r"latin\.jsonl' is not UTF-8"):
        load_prompts(str(tmp_path / "latin.jsonl"), "text_to_image")


def test_a_limit_takes_as_many_prompts_of_every_tag() -> None:
    prompts = load_prompts(str(SHAPES / "test.jsonl"), "text_to_image", limit=48)
    assert set(Counter(prompt.metadata["tag"] for prompt in prompts).values()) == {8}


CHAT = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "1+1?"}]


def test_columns_of_other_names_are_read_by_theirs(tmp_path: Path) -> None:
    names = {"prompt": "Problem", "answer": "Final"}
    row = json.dumps({"Problem": "1+1?", "Final": 2, "answer": "old", "Level": 1})
    (prompt,) = _load(tmp_path, row, columns=names)
    assert (prompt.text, prompt.answer, prompt.metadata) == ("1+1?", "2", {"Level": 1})
    with pytest.raises(ConfigError, match=r"line 1 has no 'Final'; it has \['Problem'\]"):
        _load(tmp_path, '{"Problem": "x"}', columns=names)


def test_a_template_words_the_prompt_from_the_columns(tmp_path: Path) -> None:
    row = json.dumps({"prompt": "x", "numbers": [1, 2], "tests": ["a", "b"]})
    template = "{prompt}: {numbers}\n{tests}\n\\boxed{{...}}"
    (prompt,) = _load(tmp_path, row, template=template)
    assert prompt.text == "x: [1, 2]\na\nb\n\\boxed{...}" and prompt.messages is None
    assert prompt.metadata == {"numbers": [1, 2], "tests": ["a", "b"]}


@pytest.mark.parametrize(
    ("data", "row", "message"),
    [
        ({"template": "{promt}"}, {"prompt": "x"}, r"names 'promt', and .*line 1 has .*'prompt'\]"),
        ({"template": "{prompt}"}, {"messages": CHAT}, r"data\.template.*empty where rows have m"),
        ({"split": "test"}, {"prompt": "x"}, r"data\.split is 'test'.*null for a file"),
    ],
)
def test_settings_that_do_not_fit_the_rows_are_refused(
    tmp_path: Path, data: dict, row: dict, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        _load(tmp_path, json.dumps(row), **data)


def test_rows_of_some_values_are_read_and_keep_their_numbers(tmp_path: Path) -> None:
    lines = [{"prompt": str(n), "kind": n % 3, "part": "ab"[n % 2]} for n in range(8)]
    text = "\n".join(map(json.dumps, lines))
    found = _load(tmp_path, text, where={"kind": [0, "2"], "part": "a"})
    assert [(prompt.id, prompt.text) for prompt in found] == [
        (f"rows-{n}", str(n)) for n in (0, 2, 6)
    ]
    with pytest.raises(ConfigError, match=r"holds no prompts with data\.where \{'knd': 1\}"):
        _load(tmp_path, text, where={"knd": 1})


def test_rows_are_read_by_the_number_of_items_in_a_column(tmp_path: Path) -> None:
    lines = [{"prompt": str(n), "nums": list(range(n))} for n in range(5)]
    text = "\n".join(map(json.dumps, lines))
    assert [p.text for p in _load(tmp_path, text, where={"len(nums)": [2, 3]})] == ["2", "3"]
    with pytest.raises(ConfigError, match="holds no prompts with data.where"):
        _load(tmp_path, text, where={"len(absent)": 0})


def test_a_csv_row_with_a_value_too_few_or_too_many_is_named(tmp_path: Path) -> None:
    assert [p.text for p in _load(tmp_path, 'prompt,answer\n"a, b",1\n', "x.csv")] == ["a, b"]
    for line in ("a", "a,1,2"):
        with pytest.raises(ConfigError, match=r"x\.csv, line 3 has not one value.*prompt, answer"):
            _load(tmp_path, f"prompt,answer\nb,1\n{line}\n", "x.csv")


@pytest.fixture
def published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data set as it lies on the hub: two configurations, `main` with two splits."""
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    folder = tmp_path / "grade_school"
    for name, rows in (("main/train", 5), ("main/test", 2), ("socratic/train", 1)):
        lines = [{"question": f"{name} {n}", "answer": f"#### {n}"} for n in range(rows)]
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}.jsonl").write_text("\n".join(map(json.dumps, lines)))
    (folder / "README.md").write_text(
        "---\nconfigs:\n- config_name: main\n  data_files:\n"
        "  - {split: train, path: main/train.jsonl}\n  - {split: test, path: main/test.jsonl}\n"
        "- config_name: socratic\n  data_files: [{split: train, path: socratic/train.jsonl}]\n---\n"
    )
    return folder


def test_a_published_set_is_read_by_configuration_and_split(published: Path) -> None:
    def texts(**data: Any) -> list[str]:
        data = {"format": "gsm8k", "config": "main", **data}
        return [prompt.text for prompt in load_prompts(str(published), "text", DataConfig(**data))]

    assert texts() == [f"main/train {n}" for n in range(5)]
    assert texts(split="train[:-2]") + texts(split="train[-2:]") == texts()
    assert texts(split="test") == ["main/test 0", "main/test 1"]
    assert texts(config="socratic") == ["socratic/train 0"]
    for wrong in ({"config": "maine"}, {"split": "dev"}):
        with pytest.raises(ConfigError, match=r"data\.config .*, data\.split .* cannot be loaded"):
            texts(**wrong)


def test_a_set_that_the_hub_does_not_give_is_told_from_a_wrong_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(NotHereError, match=r"'owner/name' .* that the hub returned"):
        load_prompts("owner/name", "text")


def test_bytes_of_a_parquet_stay_in_its_file_until_they_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    rows = [{"a": n, "image": {"bytes": b"x" * n, "path": None}, "b": None} for n in range(2500)]
    Dataset.from_list(rows).to_parquet(str(tmp_path / "rows.parquet"))
    places, found = zip(*read_rows(str(tmp_path / "rows.parquet")), strict=True)
    assert places[2400].endswith("rows.parquet, row 2400")
    assert [row.keys() for row in found[1::999]] == [{"a", "image"}] * 3
    for n in (1, 999, 1000, 2499):
        assert found[n]["a"] == n and found[n]["image"]["bytes"].read() == b"x" * n


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
                    add_file(archive, f"{n:03}.{suffix}", data)
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
def test_a_stream_has_every_item_once_an_epoch_in_its_seeds_order(kind: str, folder: Path) -> None:
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
