"""SEED-Bench, MMMU and MathVista as they lie on the hub and as files become questions to score."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mmrl.config import ConfigError
from mmrl.data.prompts import DataConfig, load_prompts
from mmrl.data.questions import LETTER, PHRASE
from mmrl.rewards import build_reward
from mmrl.types import Prompt, Sample
from tests.mmrl.question_sets import ABOUT, MMMU, OPEN, SEED, SETS, VISTA, image, on_the_hub

ASKED = "{prompt}\n{hint}"


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")


def seen(prompt: Prompt) -> list[int]:
    """The grey of a prompt's images."""
    return [int(np.asarray(image)[0, 0, 0]) for image in prompt.images or ()]


def read(source: str, **data: Any) -> list[Prompt]:
    return load_prompts(source, "image_to_text", DataConfig(**data))


def score(prompt: Prompt, completion: str) -> float | None:
    (found,) = build_reward({"name": "answer"})([Sample(prompt.text, completion, prompt.facts)])
    return found


def test_seed_bench_of_the_hub_is_read_without_its_videos(tmp_path: Path) -> None:
    video = {**SEED, "data_type": "video", "question_id": "1", "question_type_id": 10}
    rows = [
        {**SEED, "image": [image(7)], "segment": None},
        {**video, "image": [image(n) for n in range(8)], "segment": [1, 2]},
    ]
    source = on_the_hub(tmp_path, rows, *SETS["seed_bench"][1:])
    kept = {"data_type": "image"}
    (prompt,) = read(source, format="seed_bench", split="test", where=kept, template=ASKED)
    assert prompt.text == f"How many towels?\nA. One\nB. Two\nC. Three\nD. Four\n{LETTER}"
    assert (prompt.id, prompt.answer, seen(prompt)) == ("101669", "C", [7])
    assert (prompt.metadata["tag"], prompt.metadata["form"]) == ("Instances Counting", "choice")
    assert [score(prompt, said) for said in ("C", "C.", "three", "A")] == [1, 1, 1, 0]
    everything = read(source, format="seed_bench", split="test")
    assert [len(seen(prompt)) for prompt in everything] == [1, 8]
    assert everything[1].metadata["tag"] == "Action Recognition"
    with pytest.raises(ConfigError, match="holds no prompts with data.where .*vidoe"):
        read(source, format="seed_bench", split="test", where={"data_type": "vidoe"})


def test_mmmu_of_the_hub_asks_for_letters_and_for_words(tmp_path: Path) -> None:
    source = on_the_hub(tmp_path, *SETS["mmmu"])
    settings = {"format": "mmmu", "split": "validation", "template": "{prompt}\n\n{hint}"}
    choice, short = read(source, **settings)
    assert choice.text == (
        f"<image 1> Which of <image 2> is older?\nA. the left one\nB. the right one's\n\n{LETTER}"
    )
    assert (choice.id, choice.answer, seen(choice)) == (MMMU["id"], "B", [1, 2])
    assert short.text == f"What rate does <image 1> show?\n\n{PHRASE}" and seen(short) == [1]
    told = [[p.metadata[key] for key in ("tag", "discipline", "form")] for p in (choice, short)]
    assert told == [["Art_Theory", "Art and Design", "choice"], ["Finance", "Business", "short"]]
    assert choice.metadata["subfield"] == "Art Theory" and "explanation" not in choice.metadata
    assert [score(choice, said) for said in ("B", "(B)", "A", "A or B")] == [1, 1, 0, 0]
    answers = ("24.55", "24.551", "24.55%", "about a quarter", "24.5", "24.55 or 25")
    assert [score(short, said) for said in answers] == [1, 1, 1, 1, 0, 0]
    alone = read(source, **settings, where={"question_type": "open"})
    assert [prompt.id for prompt in alone] == [OPEN["id"]]


def test_mathvista_of_the_hub_asks_for_each_kind_of_answer(tmp_path: Path) -> None:
    source = on_the_hub(tmp_path, *SETS["mathvista"])
    prompts = read(source, format="mathvista", split="testmini", template=ASKED)
    assert [seen(prompt) for prompt in prompts] == [[1]] * 4
    asked = [prompt.text.removeprefix("How far is it?") for prompt in prompts]
    number = "Answer the question using a single "
    assert asked == [
        f" (Unit: m)\n{number}floating-point number with one decimal place.",
        f"\n{number}integer number.",
        "\nAnswer the question using a Python list.",
        f"\nA. -1\nB. +1\nC. √2\nD. 2\n{LETTER}",
    ]
    length, count, years, root = prompts
    assert [score(length, said) for said in ("1.2", "1.23 m", "It is 1.2.", "1.3")] == [1, 1, 1, 0]
    assert [score(count, said) for said in ("4", "4.0", "four", "5")] == [1, 1, 1, 0]
    assert [score(years, said) for said in ("[2007, 2008]", "2007, 2008", "2007")] == [1, 1, 0]
    assert [score(root, said) for said in ("C", "The answer is C.", "D", "A")] == [1, 1, 0, 0]
    known = length.metadata
    assert (known["tag"], known["task"]) == (ABOUT["category"], ABOUT["task"])
    assert known["skills"] == ABOUT["skills"] and known["answer_type"] == "float"
    worded = read(source, format="mathvista", split="testmini", template="{query}")
    assert worded[0].text == VISTA["query"]


@pytest.mark.parametrize(
    ("name", "row", "message"),
    [
        ("seed_bench", {**SEED, "answer": "E"}, "answer is 'E' and the choices are"),
        ("seed_bench", SEED, "no 'image', which data.format seed_bench reads"),
        ("mmmu", {**OPEN, "answer": "?"}, "answer is '\\?'; splits whose answers are not public"),
        ("mmmu", {**MMMU, "options": "['a'"}, "options is \"\\['a'\", and no list"),
        ("mmmu", {**MMMU, "question": "<image 5>"}, "shows <image 5>, and there is no image_5"),
        ("mathvista", {**VISTA, "metadata": "x"}, "metadata is 'x', and no mapping"),
    ],
)
def test_a_question_that_cannot_be_scored_is_refused_with_its_row(
    tmp_path: Path, name: str, row: dict[str, Any], message: str
) -> None:
    plain = {k: v for k, v in row.items() if "image" not in k or k == "image"}
    images = {k: "0.png" for k, v in row.items() if k.startswith("image_") and v}
    (tmp_path / "rows.json").write_text(json.dumps([{**plain, **images}]))
    with pytest.raises(ConfigError, match=f"rows.json, entry 0.*{message}"):
        read(str(tmp_path / "rows.json"), format=name)


def test_choices_of_any_row_are_lettered_by_a_template(tmp_path: Path) -> None:
    rows = [
        {"question": "Which?", "choices": ["red", "blue"], "answer": "blue"},
        {"question": "How many?", "answer": "2"},
    ]
    (tmp_path / "rows.json").write_text(json.dumps(rows))
    choice, short = read(str(tmp_path / "rows.json"), template="{prompt}{lettered}\n{hint}")
    assert choice.text == f"Which?\nA. red\nB. blue\n{LETTER}" and score(choice, "B") == 1.0
    assert short.text == f"How many?\n{PHRASE}" and score(short, "two") == 1.0
