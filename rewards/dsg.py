"""Davidsonian scene graph: the share of a prompt's yes/no questions that its image fulfils.

    {name: dsg, model: Qwen/Qwen3-VL-8B-Instruct, urls: ["http://127.0.0.1:8000/v1"]}

The metadata `questions` is a list of questions, each with the `parents` on which it depends: "is
the car red?" on "is there a car?" (Cho et al. 2023, arXiv:2310.18235; DPG-Bench, Hu et al. 2024,
arXiv:2403.05135). A judge sees the image and one question, never the prompt. A question counts as
no if one of its parents does.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from typing import Any, ClassVar, NamedTuple

from mmrl.config import check
from mmrl.rewards.judge import JudgeReward
from mmrl.rewards.parsing.images import image_of
from mmrl.rewards.registry.interface import Item, complete, outcomes
from mmrl.types import Sample


class Question(NamedTuple):
    """A question about an image; `parents` are numbers of questions it depends on."""

    number: int
    text: str
    parents: tuple[int, ...]
    category: str


@dataclass(kw_only=True, eq=False)
class DSGReward(JudgeReward):
    """Scores images by the questions of their prompts; the options are those of the judge.

    A reply without an answer is a failure of its sample. `record` gets the answers to the questions
    of each sample, where it is set to a list.
    """

    needs: ClassVar[tuple[str, ...]] = ("images", "metadata")
    usual: ClassVar[str] = "yes_no"
    """The template where none is named."""

    def __post_init__(self) -> None:
        self.record: list[tuple[Sample, list[Item]]] | None = None
        self.template = self.template or self.usual
        check(self.chunk_size is None, "dsg.chunk_size", self.chunk_size, "null")
        super().__post_init__()
        limits = [self._template.lowest, self._template.highest]
        check(limits == [0, 1], f"lowest and highest of {self.template}", limits, "[0, 1]")

    def __call__(self, samples: list[Sample]) -> list[float | list[float] | None]:
        """Scores in [0, 1]; None for a sample whose metadata has no `questions`."""
        questions = [read_questions(sample.metadata) for sample in samples]
        for sample in samples:
            image_of(sample, "dsg")
        pairs = list(zip(samples, questions, strict=True))
        asked = [Sample(one.text, sample.completion) for sample, own in pairs for one in own]
        answers = iter(outcomes(super().__call__, asked))
        results = [self._result(one, own, [next(answers) for _ in own]) for one, own in pairs]
        return complete(results)

    def check(self, metadata: Mapping[str, Any]) -> None:
        """Raise a ValueError for questions that cannot be asked."""
        read_questions(metadata)

    def _result(
        self, sample: Sample, questions: Sequence[Question], answers: Sequence[Any]
    ) -> float | None | Exception:
        errors = [answer for answer in answers if isinstance(answer, Exception)]
        if errors or not questions:
            return errors[0] if errors else None
        return self._score(sample, questions, answers)

    def _score(
        self, sample: Sample, questions: Sequence[Question], answers: Sequence[Any]
    ) -> float:
        """The score of a sample all of whose questions are answered."""
        said = {q.number: answer > 0.5 for q, answer in zip(questions, answers, strict=True)}
        holds = follow_parents(questions, said)
        if self.record is not None:
            items = [Item(q.category, float(said[q.number]), holds[q.number]) for q in questions]
            self.record.append((sample, items))
        return sum(holds.values()) / len(holds)


def follow_parents(questions: Sequence[Question], said: Mapping[int, bool]) -> dict[int, float]:
    """1.0 for each question that was answered with yes (`said`, by number) and all of whose parents
    hold, else 0.0; the questions have no circle of parents."""
    parents = {question.number: question.parents for question in questions}

    def holds(number: int) -> bool:
        return said[number] and all(map(holds, parents[number]))

    return {question.number: float(holds(question.number)) for question in questions}


def read_questions(metadata: Mapping[str, Any]) -> list[Question]:
    """The questions of a prompt; none where it has no `questions`. Raises ValueError: one without
    text or number, a number twice, a parent that does not exist, or questions that depend on each
    other in a circle."""
    rows = metadata.get("questions") or []
    check(isinstance(rows, list), "questions", rows, "a list of questions")
    questions = [_read_question(row) for row in rows]
    parents = {question.number: question.parents for question in questions}
    if len(parents) < len(questions):
        raise ValueError(f"questions have the numbers {[q.number for q in questions]}, one twice")
    for question in questions:
        unknown = [number for number in question.parents if number not in parents]
        if unknown:
            raise ValueError(
                f"question {question.number} depends on {unknown}, which are not there"
            )
    try:
        TopologicalSorter(parents).prepare()
    except CycleError as error:
        circle = sorted(set(error.args[1]))
        raise ValueError(f"questions {circle} depend on each other in a circle") from None
    return questions


def _read_question(row: Any) -> Question:
    match row:
        case {"number": int(number), "question": str(text), **rest} if text.strip():
            parents, category = rest.get("parents") or [], rest.get("category") or ""
            if isinstance(parents, list) and all(type(parent) is int for parent in parents):
                return Question(number, text, tuple(parents), str(category))
    raise ValueError(
        f"{row!r:.200} is no question; it must be like {{number: 2, question: Is the car red?,"
        " parents: [1], category: attribute - color}"
    )
