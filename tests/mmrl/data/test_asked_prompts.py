"""Prompts whose questions are of a published benchmark: DPG-Bench and GenEval 2."""

import json
from pathlib import Path

import pytest

from mmrl.config import ConfigError
from mmrl.data.prompts import DataConfig, load_prompts
from mmrl.rewards.dsg import read_questions
from mmrl.types import Prompt

ROW = {  # the example of its README, shortened
    "prompt": "four white bicycles in front of three plastic cows",
    "atom_count": 7,
    "vqa_list": [
        ["How many bicycles are in the image?", "four"],
        ["Are the bicycles white?", "Yes"],
    ],
    "skills": ["count", "attribute"],
}


def read(folder: Path, row: dict) -> list[Prompt]:
    (folder / "geneval2_data.jsonl").write_text(json.dumps(row) + "\n")
    data = DataConfig(format="geneval2")
    return load_prompts(str(folder / "geneval2_data.jsonl"), "text_to_image", data)


def test_each_atom_is_a_question_whose_right_answer_is_yes(tmp_path: Path) -> None:
    [prompt] = read(tmp_path, ROW)
    assert (prompt.text, prompt.metadata["tag"]) == (ROW["prompt"], "7 atoms")
    first, second = read_questions(prompt.facts)
    assert first.text == "How many bicycles are in the image? Is the answer: four?"
    assert second.text == "Are the bicycles white?"
    assert [q.category for q in (first, second)] == ["count", "attribute"]


def test_questions_without_a_skill_each_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="shorter"):
        read(tmp_path, {**ROW, "skills": ["count"]})


HEAD = "item_id,text,keywords,proposition_id,dependency,category_broad,category_detailed,tuple,"
HEAD += "question_natural_language\n"
ROWS = [
    '1,"A car, red.",,1,0,entity,whole,entity - whole (car),Is there a car?\n',
    '1,"A car, red.",,2,1,attribute,color,"attribute - color (car, red)",Is the car red?\n',
    'stanford0,Two dogs.,,1,0,entity,whole,entity - whole (dogs),Are there dogs?\n',
    'stanford0,Two dogs.,,2,"1",other,count,other - count (dogs ==2),Are there two dogs?\n',
    'stanford0,Two dogs.,,3,"1, 2",relation,spatial,relation - spatial (x),Side by side?\n',
]  # fmt: skip


def read_dpg(folder: Path, *rows: str, head: str = HEAD, limit: int | None = None) -> list[Prompt]:
    (folder / "dpg_bench.csv").write_text(head + "".join(rows), encoding="utf-8")
    data = DataConfig(format="dpg_bench")
    return load_prompts(str(folder / "dpg_bench.csv"), "text_to_image", data, limit)


def test_every_question_of_a_prompt_is_kept_with_its_parents_and_category(tmp_path: Path) -> None:
    first, second = read_dpg(tmp_path, *ROWS)
    assert (first.id, first.text) == ("1", "A car, red.")
    assert [q.text for q in read_questions(first.facts)] == ["Is there a car?", "Is the car red?"]
    assert (second.id, second.text) == ("stanford0", "Two dogs.")
    last = read_questions(second.facts)[-1]
    assert (last.number, last.parents, last.category) == (3, (1, 2), "relation - spatial")
