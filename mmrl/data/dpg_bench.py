"""DPG-Bench (Hu et al. 2024, arXiv 2403.05135): a row per question becomes a row per prompt.

`dpg_bench.csv` has `item_id`, `text` (the prompt), `proposition_id` (number of a question),
`dependency` (numbers of its parents, 0 for none), `category_broad`, `category_detailed`, `tuple`
and `question_natural_language`. The questions become the metadata `questions` of the reward `dsg`.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from mmrl.config import ConfigError

Row = dict[str, Any]


def group_questions(rows: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, Row]]:
    """The rows of prompts, in the order of the file, each with the place of its first question.

    Raises:
        ConfigError: a row without one of the columns, or with another text than its prompt.
    """
    prompts: dict[str, tuple[str, Row]] = {}
    for place, row in rows:
        try:
            name, text, question = str(row["item_id"]), row["text"], _read_question(row)
        except KeyError as error:
            raise ConfigError(
                f"{place} has no {error.args[0]!r}, which data.format dpg_bench reads; it has"
                f" {sorted(row)}."
            ) from error
        except (ValueError, AttributeError) as error:
            raise ConfigError(f"{place}: {error}.") from error
        _, prompt = prompts.setdefault(name, (place, {"id": name, "prompt": text, "questions": []}))
        if prompt["prompt"] != text:
            raise ConfigError(f"{place}: item_id {name!r} has another text than in its first row.")
        prompt["questions"].append(question)
    yield from prompts.values()


def dpg_bench(row: Row) -> Row:
    """A prompt with its questions, as `group_questions` gives it."""
    return {"id": row["id"], "prompt": row["prompt"], "questions": row["questions"]}


def _read_question(row: Row) -> Row:
    numbers = [int(part) for part in str(row["dependency"]).split(",")]
    about = [str(row[key]).strip() for key in ("category_broad", "category_detailed")]
    return {
        "number": int(row["proposition_id"]),
        "question": row["question_natural_language"],
        "parents": [number for number in numbers if number != 0],
        "category": " - ".join(about),
    }
