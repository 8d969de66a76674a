"""Rows of public question sets with the columns that they have on the hub."""

from pathlib import Path
from typing import Any

from datasets import Dataset, Features, List, Value
from datasets import Image as ImageFeature
from PIL import Image

from tests.pictures import png


def image(level: int) -> dict[str, Any]:
    """An image as the Image feature stores it, told apart by its grey."""
    return {"bytes": png(Image.new("L", (4, 4), level)), "path": None}


def on_the_hub(folder: Path, rows: list[dict[str, Any]], types: dict[str, Any], split: str) -> str:
    """A data set in the layout of the hub, whose rows have columns of exactly these types."""
    (folder / "set" / "data").mkdir(parents=True)
    path = folder / "set" / "data" / f"{split}-00000-of-00001.parquet"
    whole = [{name: row.get(name) for name in types} for row in rows]
    Dataset.from_list(whole, features=Features(types)).to_parquet(str(path))
    return str(folder / "set")


TEXT = Value("string")
SEED_TYPES = {"answer": TEXT, "choice_a": TEXT, "choice_b": TEXT, "choice_c": TEXT}
SEED_TYPES |= {"choice_d": TEXT, "data_id": TEXT, "data_type": TEXT, "question": TEXT}
SEED_TYPES |= {"question_id": TEXT, "question_type_id": Value("int16")}
SEED_TYPES |= {"image": List(ImageFeature(decode=False)), "segment": List(Value("int64"))}
SEED: dict[str, Any] = {"answer": "C", "choice_a": "One", "choice_b": "Two", "choice_c": "Three"}
SEED |= {"choice_d": "Four", "data_id": "1454426_2591111986", "data_type": "image"}
SEED |= {"question": "How many towels?", "question_id": "101669", "question_type_id": 5}


MMMU_TYPES = {"id": TEXT, "question": TEXT, "options": TEXT, "explanation": TEXT}
MMMU_TYPES |= {f"image_{n}": ImageFeature(decode=False) for n in range(1, 8)}
MMMU_TYPES |= {"img_type": TEXT}
MMMU_TYPES |= {"answer": TEXT, "topic_difficulty": TEXT, "question_type": TEXT, "subfield": TEXT}
MMMU: dict[str, Any] = {"id": "validation_Art_Theory_12"}
MMMU |= {"question": "<image 1> Which of <image 2> is older?"}
MMMU |= {"options": "['the left one', \"the right one's\"]", "explanation": ""}
MMMU |= {"image_1": image(1), "image_2": image(2), "img_type": "['Paintings']", "answer": "B"}
MMMU |= {"topic_difficulty": "Easy", "question_type": "multiple-choice"}
MMMU |= {"subfield": "Art Theory"}
OPEN: dict[str, Any] = {**MMMU, "id": "validation_Finance_3"}
OPEN |= {"question": "What rate does <image 1> show?", "options": "[]"}
OPEN |= {"answer": "['24.55', 'about a quarter']", "question_type": "open"}
OPEN |= {"image_2": None}


ABOUT = {"category": "math-targeted-vqa", "context": "table", "grade": "high school"}
ABOUT |= {"img_height": 4, "img_width": 4, "language": "english"}
ABOUT |= {"skills": ["algebraic reasoning", "arithmetic"], "source": "TabMWP", "split": "testmini"}
ABOUT |= {"task": "math word problem"}
VISTA_TYPES = {
    "pid": TEXT,
    "question": TEXT,
    "image": TEXT,
    "decoded_image": ImageFeature(decode=False),
    "choices": List(TEXT),
    "unit": TEXT,
    "precision": Value("float64"),
    "answer": TEXT,
    "question_type": TEXT,
    "answer_type": TEXT,
    "metadata": {
        key: List(TEXT) if key == "skills" else Value("int64") if key[:3] == "img" else TEXT
        for key in ABOUT
    },
    "query": TEXT,
}
VISTA: dict[str, Any] = {"pid": "1", "question": "How far is it?", "image": "images/1.jpg"}
VISTA |= {"decoded_image": image(1), "choices": None, "unit": "m", "precision": 1.0}
VISTA |= {"answer": "1.2", "question_type": "free_form", "answer_type": "float"}
VISTA |= {"metadata": ABOUT, "query": "Hint: … Question: How far is it?"}
VISTAS = [
    VISTA,
    {**VISTA, "pid": "2", "unit": None, "precision": None, "answer": "4", "answer_type": "integer"},
    {**VISTA, "pid": "3", "unit": None, "answer": "[2007, 2008]", "answer_type": "list"},
    {**VISTA, "pid": "4", "unit": None, "choices": ["-1", "+1", "√2", "2"], "answer": "√2"}
    | {"question_type": "multi_choice", "answer_type": "text"},
]
SETS: dict[str, tuple[list[dict[str, Any]], dict[str, Any], str]] = {
    "seed_bench": ([{**SEED, "image": [image(9)]}], SEED_TYPES, "test"),
    "mmmu": ([MMMU, OPEN], MMMU_TYPES, "validation"),
    "mathvista": (VISTAS, VISTA_TYPES, "testmini"),
}
"""Rows of each set, the types of its columns, and its split."""
