"""Questions with dependencies against a real server that looks at the image."""

from typing import Any

import pytest
from PIL import Image

from mmrl.rewards import PartialFailure, build_reward
from mmrl.rewards.registry.interface import Item
from mmrl.types import Sample
from tests.rewards.judge_server import counts


def dsg(url: str, model: str = "colours", **options: Any) -> Any:
    return build_reward({"name": "dsg", "model": model, "urls": [url], **options})


def question(number: int, text: str, *parents: int, category: str = "entity - whole") -> dict:
    return {"number": number, "question": text, "parents": [*parents], "category": category}


def sample(color: str, *questions: dict) -> Sample:
    image = Image.new("RGB", (8, 8), color)
    return Sample("the words of the prompt", image, {"questions": [*questions]})


SCENE = [question(1, "is it red?"), question(2, "is it blue?")]
SCENE += [question(3, "is it red or blue?", 2, category="attribute - color")]
SCENE += [question(4, "is it neither?")]


def test_the_judge_sees_image_and_question_and_the_score_is_their_share(url: str) -> None:
    reward = dsg(url)
    assert reward([sample("red", *SCENE), sample("blue", *SCENE)]) == [0.25, 0.5]
    message = counts(url)["last"]["messages"][-1]["content"]
    assert [part["type"] for part in message] == ["image_url", "text"]
    assert "the words of the prompt" not in message[1]["text"] and "\nis it " in message[1]["text"]


def test_a_question_counts_as_no_where_a_parent_does_and_is_kept_as_answered(url: str) -> None:
    reward, red = dsg(url), sample("red", *SCENE)
    reward.record = []
    assert reward([red, Sample("x", red.completion, {})]) == [0.25, None]
    [(recorded, items)] = reward.record
    assert recorded is red and items[2] == Item("attribute - color", 1.0, 0.0)


def test_no_answer_is_a_failure_of_its_sample(url: str) -> None:
    with pytest.raises(PartialFailure, match="no JSON"):
        dsg(url, "prose", reasks=0)([sample("red", *SCENE)])
    with pytest.raises(ValueError, match="'dsg' scores images"):
        dsg(url)([Sample("x", "a text", {"questions": SCENE})])


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("none", "questions is 'none'"),
        ([{"question": "a?"}], "is no question"),
        ([question(1, " ")], "is no question"),
        ([question(1, "a?"), question(1, "b?")], "one twice"),
        ([question(1, "a?", 7)], r"question 1 depends on \[7\]"),
        ([question(1, "a?", 2), question(2, "b?", 1)], r"\[1, 2\] depend on each other"),
    ],
)
def test_questions_that_cannot_be_asked_are_refused(url: str, rows: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        dsg(url).check({"questions": rows})


def test_soft_answers_are_the_probabilities_of_yes_and_their_mean_the_score(url: str) -> None:
    options = {"name": "soft_tifa", "model": "colours", "urls": [url]}
    reward: Any = build_reward(options)
    reward.record = []
    red = sample("red", question(1, "is it red?"), question(2, "is it blue?", 1))
    assert reward([red, Sample("x", red.completion, {})]) == [pytest.approx(0.5), None]
    assert [item.score for item in reward.record[0][1]] == pytest.approx([0.8, 0.2])
    [score] = build_reward({**options, "mean": "geometric"})([red])
    assert score == pytest.approx(0.4)
    assert (counts(url)["last"]["max_tokens"], counts(url)["last"]["top_logprobs"]) == (1, 20)
    with pytest.raises(PartialFailure, match="lists no log-probs"):
        build_reward({**options, "model": "prose", "reasks": 0})([red])
