"""Formats of public sets of questions about images.

Beside the columns of `mmrl.data.formats`, a row gets its category as `tag`, its `form` (`choice`,
`short`), and `hint`, the sentence that lmms-eval puts after a question of its kind. The choices are
in the prompt, each on a line after its letter, and as `choices` in the metadata. A `data.template`
such as "{prompt}\\n{hint}" adds the hint to the prompt.
"""

import ast
import re
from collections.abc import Mapping, Sequence
from string import ascii_lowercase, ascii_uppercase
from typing import Any

Row = dict[str, Any]
"""A row of a data set."""

LETTER = "Answer with the option's letter from the given choices directly."
PHRASE = "Answer the question using a single word or phrase."

SEED_KINDS = (
    "Scene Understanding",
    "Instance Identity",
    "Instance Attributes",
    "Instance Location",
    "Instances Counting",
    "Spatial Relation",
    "Instance Interaction",
    "Visual Reasoning",
    "Text Understanding",
    "Action Recognition",
    "Action Prediction",
    "Procedure Understanding",
)
"""SEED-Bench's kinds of questions, from number 1."""

MMMU_DISCIPLINES = {
    "Art and Design": "Art Art_Theory Design Music",
    "Business": "Accounting Economics Finance Manage Marketing",
    "Science": "Biology Chemistry Geography Math Physics",
    "Health and Medicine": "Basic_Medical_Science Clinical_Medicine"
    " Diagnostics_and_Laboratory_Medicine Pharmacy Public_Health",
    "Humanities and Social Science": "History Literature Psychology Sociology",
    "Tech and Engineering": "Agriculture Architecture_and_Engineering Computer_Science Electronics"
    " Energy_and_Power Materials Mechanical_Engineering",
}
"""Discipline -> its subjects, as ids of MMMU name them."""

_MARK = re.compile(r"<image (\d+)>")


def omit(row: Row, *keys: str) -> Row:
    """The row without some columns."""
    return {key: value for key, value in row.items() if key not in keys}


def drop_empty(**values: Any) -> Row:
    """The values that are not empty."""
    return {key: value for key, value in values.items() if value}


def letter_choices(choices: Sequence[Any]) -> str:
    """Write choices on a line each after their letters; every line starts with a line end."""
    pairs = zip(ascii_uppercase, choices, strict=False)
    return "".join(f"\n{letter}. {choice}" for letter, choice in pairs)


def choose_hint(row: Mapping[str, Any]) -> str:
    """The hint of a row; where it has none, for a letter or a short answer."""
    return row.get("hint") or (LETTER if row.get("choices") else PHRASE)


def seed_bench(row: Row) -> Row:
    """SEED-Bench (arXiv 2307.16125): `choice_a` and so on, a letter as `answer`."""
    named = [f"choice_{letter}" for letter in ascii_lowercase]
    choices = [str(row[name]) for name in named if row.get(name) is not None]
    for name in named[: len(choices)]:
        if row.get(name) is None:
            raise ValueError(f"{name} has no text, but one behind it has")
    kind = str(row.get("question_type_id", ""))
    known = kind.isdecimal() and 1 <= int(kind) <= len(SEED_KINDS)
    return {
        **omit(row, "question", "question_id", "answer", *named),
        **_multiple_choice(row["question"], choices, str(row["answer"]).upper()),
        **drop_empty(id=row.get("question_id"), tag=SEED_KINDS[int(kind) - 1] if known else kind),
        "image": row["image"],
    }


def mmmu(row: Row) -> Row:
    """MMMU (arXiv 2311.16502): `options` as the text of a list, images as `image_1` to `image_7`
    before the words, in which their marks `<image 1>` stay, as in lmms-eval. Subject and discipline
    come from the id. Numbers of open questions are compared to two decimals."""
    images = {n: row[f"image_{n}"] for n in range(1, 8) if row.get(f"image_{n}")}
    options = read_texts(row["options"], "options")
    asked = row["question"] + letter_choices(options)
    for mark in _MARK.findall(asked):
        if int(mark) not in images:
            raise ValueError(f"the question shows <image {mark}>, and there is no image_{mark}")
    if row["question_type"] == "multiple-choice":
        ours = _multiple_choice(row["question"], options, str(row["answer"]))
    else:
        answers = str(row["answer"])
        ours = _short(asked, read_texts(answers, "answer") if answers[:1] == "[" else [answers])
        ours |= {"precision": 2}
    unread = ("question", "options", "answer", "question_type", "explanation")
    return {
        **omit(row, *unread, *(f"image_{n}" for n in range(1, 8))),
        **ours,
        **_mmmu_subject(row),
        "images": list(images.values()),
    }


def _mmmu_subject(row: Row) -> Row:
    named = re.fullmatch(r"[a-z]+_(\w+)_\d+", str(row.get("id", "")))
    subject = named[1] if named else row.get("subfield")
    for discipline, subjects in MMMU_DISCIPLINES.items():
        if subject in subjects.split():
            return {"tag": subject, "discipline": discipline}
    return drop_empty(tag=subject)


def mathvista(row: Row) -> Row:
    """MathVista (arXiv 2310.02255): `choices` or a number, list or text; the image is
    `decoded_image`. The entries of `metadata` become metadata, its `category` the tag. Numbers are
    compared to `precision` decimals, whole ones after rounding (the public code truncates)."""
    about, unit = row.get("metadata") or {}, row.get("unit")
    if not isinstance(about, Mapping):
        raise ValueError(f"metadata is {about!r}, and no mapping")
    question = row["question"] + (f" (Unit: {unit})" if unit else "")
    if row["question_type"] == "multi_choice":
        choices, answer = read_texts(row["choices"], "choices"), str(row["answer"])
        letter = ascii_uppercase[choices.index(answer)] if answer in choices else answer
        ours = _multiple_choice(question, choices, letter)
    else:
        ours = _short(question, [str(row["answer"])]) | _mathvista_number(row)
    unread = ("pid", "question", "choices", "answer", "unit", "precision", "metadata", "image")
    return {
        **omit(row, *unread, "decoded_image"),
        **about,
        **ours,
        **drop_empty(id=row.get("pid"), tag=about.get("category")),
        "image": row["decoded_image"],
    }


def _mathvista_number(row: Row) -> Row:
    """The decimals that are compared, and lmms-eval's hint for the kind of answer."""
    kind = row["answer_type"]
    if kind == "integer":
        return {"precision": 0, "hint": "Answer the question using a single integer number."}
    if kind == "list":
        return {"hint": "Answer the question using a Python list."}
    if kind != "float":
        return {}
    decimals = int(float(row.get("precision") or len(str(row["answer"]).partition(".")[2])))
    places = {1: "one decimal place", 2: "two decimal places"}.get(decimals, f"{decimals} decimals")
    wanted = f"Answer the question using a single floating-point number with {places}."
    return {"precision": decimals, "hint": wanted}


def read_texts(value: Any, name: str) -> list[str]:
    """Read a list of texts, or the text of one, as files without lists hold it. Raises ValueError:
    it is neither."""
    try:
        found = ast.literal_eval(value) if isinstance(value, str) else value
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        found = None
    if not isinstance(found, list):
        raise ValueError(f"{name} is {value!r}, and no list")
    return [str(text) for text in found]


_UNKNOWN = "splits whose answers are not public cannot be scored"


def _multiple_choice(question: str, choices: list[str], letter: str) -> Row:
    if letter not in list(ascii_uppercase[: len(choices)]):
        raise ValueError(f"answer is {letter!r} and the choices are {choices}; {_UNKNOWN}")
    asked = question + letter_choices(choices)
    ours = {"prompt": asked, "answer": letter, "choices": choices}
    return ours | {"form": "choice", "hint": LETTER}


def _short(question: str, answers: list[str]) -> Row:
    if not all(answer.strip() for answer in answers) or not answers or answers == ["?"]:
        raise ValueError(f"answer is {', '.join(answers)!r}; {_UNKNOWN}")
    first, *others = answers
    ours = {"prompt": question, "answer": first, "form": "short", "hint": PHRASE}
    return ours | drop_empty(answers=others)
