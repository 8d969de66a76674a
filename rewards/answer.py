r"""The answer reward: multiple choice by letter, other questions by the words of a short answer.

The answer is what follows `</think>`, in it the last `\boxed{…}` or `<answer>…</answer>`, else all
of it. Of several choices the completion must name exactly one: by its letter ("B", "(B)", "The
answer is B."), by its own words, or by both (`mmrl.rewards.parsing.choices`). A completion that
names two choices, contradicts a letter with the words of another choice, or only says what the
answer is not, gives no answer.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from mmrl.config import Settings, check
from mmrl.rewards.parsing.choices import find_choice, find_reference, read_choices
from mmrl.rewards.parsing.extraction import extract, find_stated, is_truncated
from mmrl.rewards.parsing.metadata import read_sample, read_values, write_value
from mmrl.rewards.parsing.number import find_number, read_number
from mmrl.rewards.parsing.wording import split_words, yes_or_no
from mmrl.types import Sample

_MARKUP = re.compile(r"\\(?:text|textbf|mathrm|mathbf|mathbb)\s*\{([^{}]*)\}|\*+|\$")


@dataclass(kw_only=True, eq=False)
class AnswerReward(Settings):
    """Score completions against the metadata `answer` and, for multiple choice, `choices`.

    `choices` is a list of texts and `answer` the letter or the text of one. Without them a letter
    as answer belongs to the choices listed in the prompt ("A. One", a line each) where there are
    any. Every other answer is compared as words: case, punctuation, articles and the spelling of
    numbers up to twenty make no difference.

    The metadata `answers` is a list of further right answers. With `precision`, a number of
    decimals, references that are numbers are compared as rounded numbers: the answer must state
    one number, with or without words around it.
    """

    where: ClassVar[str] = "answer"
    needs: ClassVar[tuple[str, ...]] = ("prompt", "completion", "metadata")

    def __call__(self, samples: list[Sample]) -> list[float | None]:
        """1.0 for the right answer, 0.0 for another, several or none; None without `answer` and
        where the metadata `is_caption` is true."""
        return [self._score(sample) for sample in samples]

    def check(self, metadata: Mapping[str, Any]) -> None:
        """Raise a ValueError where answer and choices do not belong together."""
        found = read_values(metadata, "answer", "answer")
        if found is not None:
            _read_precision(metadata)
            for answer in _read_answers(metadata):
                find_reference(answer, _choices(metadata))

    def _score(self, sample: Sample) -> float | None:
        content = read_sample(sample, "answer", "answer")
        if content is None or sample.metadata.get("is_caption") is True:
            return None
        answers, choices = _read_answers(sample.metadata), _choices(sample.metadata)
        if choices is None and all(re.fullmatch("[A-Z]", answer) for answer in answers):
            choices = read_choices(sample.prompt)
        references = [find_reference(answer, choices) for answer in answers]
        said = extract_answer(content[0])
        if said is None:
            return 0.0
        if choices is not None:
            return float(find_choice(said, choices) in references)
        decimals = _read_precision(sample.metadata)
        return float(any(is_short_answer(said, answer, decimals) for answer in answers))


def extract_answer(completion: str) -> str | None:
    """The part of a completion that answers; None where it was truncated before."""
    thought, closed, said = completion.rpartition("</think>")
    if not closed and "<think>" in completion:
        return None
    found = extract(said, ("boxed", "answer"))
    if found is None and is_truncated(said):
        return None
    return _MARKUP.sub(r"\1", found[1] if found else said).strip()


def is_short_answer(said: str, answer: str, decimals: int | None = None) -> bool:
    """Whether an answer, or what it states as "the answer is …", has the words of the reference.
    `decimals` of both count where the reference is a number; None compares words."""
    stated, value = find_stated(said), read_number(answer)
    if decimals is not None and value is not None:
        found = {number and number.value for number in map(find_number, stated or [said])}
        rounded = {one is not None and round(one, decimals) for one in found}
        return rounded == {round(value.value, decimals)}
    wanted, words = split_words(answer), split_words(said)
    if wanted in (words, (yes_or_no(words),)):
        return True
    return {split_words(text) for text in stated} == {wanted}


def _read_answers(metadata: Mapping[str, Any]) -> list[str]:
    """The answer and what is right as well."""
    others = metadata.get("answers") or []
    check(isinstance(others, list), "answers", others, "a list of further right answers")
    answers = (metadata["answer"], *others)
    return list(dict.fromkeys(write_value(answer, "answer") for answer in answers))


def _read_precision(metadata: Mapping[str, Any]) -> int | None:
    """Decimals of numbers that count; None where answers are words."""
    given = metadata.get("precision")
    decimals = given is None or (not isinstance(given, bool) and given in range(16))
    check(decimals, "precision", given, "a number of decimals, 0 to 15")
    return None if given is None else int(given)


def _choices(metadata: Mapping[str, Any]) -> list[str] | None:
    choices = metadata.get("choices")
    if choices is not None:
        texts = isinstance(choices, list) and all(isinstance(text, str) for text in choices)
        check(texts and 2 <= len(choices) <= 26, "choices", choices, "a list of 2 to 26 texts")
    return choices
