"""The cycle reward with a pixel reader (policies: `tests/mmrl/rollouts/test_policy_queries.py`)."""

import json
import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from mmrl.rewards import PartialFailure, build_reward
from mmrl.rewards.cycle import CycleReward
from mmrl.rewards.detection.shapes_detector import DetectedObject, detect
from mmrl.rewards.judging.policy_query import AsksPolicy, read_query
from mmrl.rewards.judging.scene_questions import COLORS, KINDS, build_questions
from mmrl.rewards.scoring.scorer import Scorer
from mmrl.types import Prompt, Sample
from tests import by_path

load = partial(by_path.load, Path(__file__).resolve().parents[2] / "datasets" / "shapes")
render, prompts = load("render"), load("prompts")
WORDS = re.compile(rf"(?:({'|'.join(render.COLORS)}) )?({'|'.join(render.SHAPES)})(?:e?s)?\b")


def read(asked: Sequence[Prompt]) -> list[str]:
    """Answers from the pixels alone."""
    return [_read(prompt) for prompt in asked]


def _read(prompt: Prompt) -> str:
    assert prompt.images is not None and prompt.task == "image_to_text"
    groups = [_shown(prompt.images[0], *words) for words in WORDS.findall(prompt.text)]
    if prompt.text.startswith("how many"):
        return str(len(groups[0]))
    if prompt.text.startswith("what color"):
        return groups[0][0].color if groups[0] else "none"
    if prompt.text.startswith("is there"):
        return "yes" if groups[0] else "no"
    return _side(groups[1][0], groups[0][0]) if all(groups) else "none"


def _side(one: DetectedObject, other: DetectedObject) -> str:
    """On which side of another an object lies, by the larger offset."""
    across, down = (
        one.box[axis] + one.box[axis + 2] - other.box[axis] - other.box[axis + 2] for axis in (0, 1)
    )
    if abs(across) > abs(down):
        return "left" if across < 0 else "right"
    return "above" if down < 0 else "below"


def _shown(image: Image.Image, color: str, shape: str) -> list[DetectedObject]:
    found = [item for item in detect(image).objects if item.shape == shape]
    return [item for item in found if color in ("", item.color)]


def reward(**options: Any) -> CycleReward:
    built = build_reward({"name": "cycle", **options})
    assert isinstance(built, CycleReward) and isinstance(built, AsksPolicy)
    built.bind(read)
    return built


def drawn(metadata: dict[str, Any], seed: int = 0) -> Sample:
    """An image that shows what the metadata asks for, somewhere."""
    scene = prompts.scene_for(metadata, np.random.default_rng(seed))
    return Sample("", render.render(scene), metadata)


RING = {"include": [{"class": "ring", "count": 1, "color": "red"}]}
LEFT = {"class": "cross", "count": 1, "position": ["left of", 0]}
TWO = {"include": [{"class": "ring", "count": 1}, LEFT]}


def test_the_score_is_the_share_of_right_answers() -> None:
    blue = drawn({"include": [{"class": "ring", "count": 1, "color": "blue"}]})
    wrong = Sample("", blue.completion, RING)
    # no red ring to count, another colour, and no to the ring that is asked for
    assert reward(ask=["count"])([wrong]) == [0.0]
    assert reward(ask=["color"])([wrong]) == [0.0]
    turned = drawn({"include": [TWO["include"][0], {**LEFT, "position": ["above", 0]}]})
    [score] = reward()([Sample("", turned.completion, TWO)])
    assert score == pytest.approx(2 / 3)  # both are there once, on the wrong side


def test_the_policy_is_asked_once_and_equal_questions_about_equal_images_once() -> None:
    calls: list[list[str]] = []

    def counted(asked: Sequence[Prompt]) -> list[str]:
        calls.append([prompt.id for prompt in asked])
        return read(asked)

    built = reward(ask=["count", "color"], template="{question} {0} look")
    built.bind(counted)
    assert built([drawn(RING), drawn(RING), drawn(RING, 1)]) == [1.0, 1.0, 1.0]
    [ids] = calls
    assert len(ids) == len(set(ids)) == 4 and all(name.endswith("{0} look") for name in ids)
    assert built([]) == [] and calls[1:] == [[]]  # processes in step all ask, also about nothing


def test_what_cannot_be_scored_is_a_failure_of_that_sample_alone() -> None:
    samples = [drawn(RING), Sample("", "a text", RING), Sample("", "", {"include": "ring"})]
    with pytest.raises(PartialFailure) as failure:
        reward()(samples)
    first, *others = failure.value.results
    assert first == 1.0 and all(isinstance(each, ValueError) for each in others)
    scores = Scorer([{"name": "cycle", "reward": reward()}], max_failures=2).score(samples)
    assert scores.failed == {"cycle": [False, True, True]} and scores.total[0] == 1.0


def test_answers_are_the_likeliest_unless_something_else_is_said() -> None:
    query = read_query({"name": "cycle"}, "rewards[0]")
    assert query is not None and (query.task, query.length) == ("image_to_text", 8)
    assert query.sampler == {"name": "static", "temperature": 0.0, "eos": "leave", "steps": 8}
    entry = {"name": "cycle", "max_completion_length": 4, "sampler": {"temperature": 0.5}}
    query = read_query(entry, "rewards[0]")
    assert query is not None and query.length == 4
    assert query.sampler["steps"] == 4 and query.sampler["temperature"] == 0.5
    assert read_query({"name": "shapes"}, "rewards[0]") is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ask": ["colour"]}, r"ask\[0\] is 'colour'.*color"),
        ({"ask": []}, "ask is .*null or some of count"),
        ({"template": "what is there?"}, "cycle.template"),
        ({"max_completion_length": 0}, "max_completion_length is 0"),
        ({"batch_size": 0}, "batch_size is 0"),
        ({"mode": "strict"}, "mode"),
    ],
)
def test_a_wrong_option_is_named_with_what_is_allowed(options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build_reward({"name": "cycle", **options})


def test_prompts_of_another_schema_are_found_before_anything_is_sampled() -> None:
    with pytest.raises(ValueError, match="a class and a count"):
        reward().check({"include": [{"class": "ring"}]})
    reward().check({"answer": "3"})


SHAPES = Path(__file__).resolve().parents[2] / "datasets" / "shapes"
ALL = tuple(KINDS)
ONE_RING = {"class": "ring", "count": 1, "color": "red"}
LEFT = {"class": "cross", "count": 1, "position": ["left of", 0]}


def rows(name: str) -> list[dict[str, Any]]:
    lines = (SHAPES / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def said(include: list[dict[str, Any]], *kinds: str) -> list[tuple[str, str]]:
    found = build_questions({"include": include}, kinds or ALL)
    return [(question.text, question.facts["answer"]) for question in found]


def test_a_clause_is_asked_about_by_count_colour_side_and_existence() -> None:
    assert said([ONE_RING], "count", "color") == [
        ("how many red rings are there?", "1"),
        ("what color is the ring?", "red"),
    ]
    assert said([{"class": "bench", "count": 3}]) == [("how many benches are there?", "3")]
    assert said([ONE_RING, LEFT], "relation") == [
        ("on which side of the red ring is the cross: left, right, above or below?", "left")
    ]
    [(yes, _), (no, answer)] = said([ONE_RING], "existence")
    other = re.fullmatch(r"is there an? (\w+) ring\?", no)
    assert yes == "is there a red ring?" and answer == "no"
    assert other is not None and other[1] in COLORS and other[1] != "red"


def test_what_does_not_say_which_thing_is_meant_is_not_asked() -> None:
    both = [ONE_RING, {**ONE_RING, "color": "blue", "count": 2}]
    assert said(both, "color") == []
    assert [text for text, _ in said(both, "count")] == [
        "how many red rings are there?",
        "how many blue rings are there?",
    ]
    bare = [{"class": "ring", "count": 1}, ONE_RING]
    assert [text for text, _ in said(bare, "count")] == ["how many red rings are there?"]
    everything = [{**ONE_RING, "color": color} for color in COLORS[1:]]
    assert {text for text, answer in said(everything, "existence") if answer == "no"} == {
        f"is there a {COLORS[0]} ring?"
    }


def frame(question: str) -> str:
    """A question without its colours and shapes."""
    return re.sub(
        rf"\b({'|'.join(COLORS)})\b|\b(an?|circle|square|triangle|diamond|cross|ring)(e?s)?\b",
        "",
        question,
    )


def test_questions_about_coloured_shapes_are_worded_as_the_small_models_were_taught() -> None:
    taught = {frame(row["question"]) for row in rows("questions_train") if row["form"] == "short"}
    coloured = [row for row in rows("train") if row["tag"] in ("colors", "color_attr")]
    placed = [
        {"include": [first, {**second, "position": ["above", 0]}]}
        for first, second in (row["include"] for row in coloured if row["tag"] == "color_attr")
    ]
    kinds = ("count", "relation", "existence")
    asked = {frame(q.text) for row in [*coloured, *placed] for q in build_questions(row, kinds)}
    assert len(asked) == 3 and asked <= taught
