"""Public sets of questions about images under the names that prompts and rewards know.

Beside what `mmrl.data.formats` names, a row gets its category as `tag`, its `form` (`choice`,
`short`), and `hint`, the sentence that lmms-eval puts behind a question of its kind. Choices stand
in the prompt, each in a line behind its letter, and as `choices` in the metadata. Whether the hint
is given says `data.template`, such as "{prompt}\\n{hint}".
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from string import ascii_lowercase, ascii_uppercase
from typing import Any

Row = dict[str, Any]

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


def lettered(choices: Sequence[Any]) -> str:
    """Choices in a line each, behind their letters, every line begun with a line end."""
    pairs = zip(ascii_uppercase, choices, strict=False)
    return "".join(f"\n{letter}. {choice}" for letter, choice in pairs)


def hint(row: Mapping[str, Any]) -> str:
    """What is asked behind a question: its own hint, or else a letter or a word."""
    return row.get("hint") or (LETTER if row.get("choices") else PHRASE)


def seed_bench(row: Row) -> Row:
    """SEED-Bench (arXiv 2307.16125): `choice_a` and so on, a letter as `answer`. Without a column
    `image` the picture is the file `data_id`."""
    named = [f"choice_{letter}" for letter in ascii_lowercase if f"choice_{letter}" in row]
    choices = [str(row[name]) for name in named]
    if "image" not in row and row.get("data_type", "image") != "image":
        raise ValueError(f"data_type is {row['data_type']!r}, and there is no column 'image'")
    return {
        **_without(row, "question", "question_id", "answer", *named),
        **_multiple_choice(row["question"], choices, _letter(str(row["answer"]).upper(), choices)),
        **_named(id=row.get("question_id"), tag=_seed_kind(row)),
        "image": row["image"] if "image" in row else row["data_id"],
    }


def _seed_kind(row: Row) -> str:
    number, first = row.get("question_type_id"), row.get("data_type", "image") in ("image", "video")
    known = first and str(number) in map(str, range(1, len(SEED_KINDS) + 1))
    return SEED_KINDS[int(str(number)) - 1] if known else str(number or "")


def mmmu(row: Row) -> Row:
    """MMMU (arXiv 2311.16502): `options` as the text of a list, pictures as `image_1` to `image_7`
    before the words, in which their marks `<image 1>` stay, as in lmms-eval. Subject and discipline
    are those that the id names. Numbers of open questions count to two decimals."""
    pictures = {n: row[f"image_{n}"] for n in range(1, 8) if row.get(f"image_{n}")}
    options = texts(row["options"], "options")
    asked = row["question"] + lettered(options)
    for mark in _MARK.findall(asked):
        if int(mark) not in pictures:
            raise ValueError(f"the question shows <image {mark}>, and there is no image_{mark}")
    if row["question_type"] == "multiple-choice":
        ours = _multiple_choice(row["question"], options, _letter(str(row["answer"]), options))
    else:
        answers = str(row["answer"])
        ours = _short(asked, texts(answers, "answer") if answers[:1] == "[" else [answers])
        ours |= {"precision": 2}
    unread = ("question", "options", "answer", "question_type", "explanation")
    return {
        **_without(row, *unread, *(f"image_{n}" for n in range(1, 8))),
        **ours,
        **_mmmu_subject(row),
        "images": list(pictures.values()),
    }


def _mmmu_subject(row: Row) -> Row:
    named = re.fullmatch(r"[a-z]+_(\w+)_\d+", str(row.get("id", "")))
    subject = named[1] if named else row.get("subfield")
    for discipline, subjects in MMMU_DISCIPLINES.items():
        if subject in subjects.split():
            return {"tag": subject, "discipline": discipline}
    return _named(tag=subject)


def mmmu_interleaved(row: Row) -> Row:
    """MMMU with every picture where its mark stands first; those without a mark come first."""
    ours = mmmu(row)
    present = [n for n in range(1, 8) if row.get(f"image_{n}")]
    marked = list(dict.fromkeys(int(mark) for mark in _MARK.findall(ours["prompt"])))
    unmarked = [n for n in present if n not in marked]
    words, shown = "<image>\n" * len(unmarked), set()
    for n, part in enumerate(_MARK.split(ours["prompt"])):
        if n % 2 == 0:
            words += part
        else:
            words += f"image {part}" if part in shown else "<image>"
            shown.add(part)
    return {**ours, "prompt": words, "images": [row[f"image_{n}"] for n in (*unmarked, *marked)]}


def mathvista(row: Row) -> Row:
    """MathVista (arXiv 2310.02255): `choices` or a number, list or text; the picture is
    `decoded_image`, or else the file `image`. What `metadata` says of the question is metadata, its
    `category` the tag. A number counts to `precision` decimals, a whole one (where the public code
    cuts off what follows the point) rounded."""
    about, unit = row.get("metadata") or {}, row.get("unit")
    if not isinstance(about, Mapping):
        raise ValueError(f"metadata is {about!r}, and no mapping")
    question = row["question"] + (f" (Unit: {unit})" if unit else "")
    if row["question_type"] == "multi_choice":
        choices, answer = texts(row["choices"], "choices"), str(row["answer"])
        letter = ascii_uppercase[choices.index(answer)] if answer in choices else answer
        ours = _multiple_choice(question, choices, _letter(letter, choices))
    else:
        ours = _short(question, [str(row["answer"])]) | _mathvista_number(row)
    unread = ("pid", "question", "choices", "answer", "unit", "precision", "metadata", "image")
    return {
        **_without(row, *unread, "decoded_image"),
        **about,
        **ours,
        **_named(id=row.get("pid"), tag=about.get("category")),
        "image": row.get("decoded_image") or row["image"],
    }


def _mathvista_number(row: Row) -> Row:
    """How many decimals count, and how lmms-eval asks for the kind of answer."""
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


def texts(value: Any, name: str) -> list[str]:
    """A list of texts, or one that a file without lists holds as text.

    Raises:
        ValueError: it is neither.
    """
    try:
        found = ast.literal_eval(value) if isinstance(value, str) else value
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        found = None
    if not isinstance(found, list):
        raise ValueError(f"{name} is {value!r}, and no list")
    return [str(text) for text in found]


_UNKNOWN = "splits whose answers are not public cannot be scored"


def _letter(answer: str, choices: Sequence[str]) -> str:
    if answer not in list(ascii_uppercase[: len(choices)]):
        raise ValueError(f"answer is {answer!r} and the choices are {list(choices)}; {_UNKNOWN}")
    return answer


def _multiple_choice(question: str, choices: list[str], letter: str) -> Row:
    asked = question + lettered(choices)
    return {
        "prompt": asked,
        "answer": letter,
        "choices": choices,
        "form": "choice",
        "hint": LETTER,
    }


def _short(question: str, answers: list[str]) -> Row:
    if not all(answer.strip() for answer in answers) or not answers or answers == ["?"]:
        raise ValueError(f"answer is {', '.join(answers)!r}; {_UNKNOWN}")
    first, *others = answers
    ours = {"prompt": question, "answer": first, "form": "short", "hint": PHRASE}
    return ours | _named(answers=others)


def _without(row: Row, *keys: str) -> Row:
    return {key: value for key, value in row.items() if key not in keys}


def _named(**values: Any) -> Row:
    """The values that are there."""
    return {key: value for key, value in values.items() if value}
