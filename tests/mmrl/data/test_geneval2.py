"""GenEval 2's questions become such that yes is the right answer."""

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
