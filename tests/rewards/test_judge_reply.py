"""What counts as a score in a judge's reply, and what is none."""

import pytest

from mmrl.rewards.judging.reply import ReplyError, read_score
from mmrl.rewards.judging.template import Template, fence, load_template, shorten

WHOLE = Template(text="?")
HALVES = Template(text="?", lowest=-1, highest=1, whole=False)
UNIFIED = load_template("unified_reward")
FINAL = Template(text="?", reply="labels", labels=["Final"])
STYLE = Template(text="?", lowest=-1, reply="labels", labels=["Style"])
GROUPED = Template(text="?", reply="labels", labels=UNIFIED.labels, groups=[2, 1])
LINES = "Alignment Score (1-5): {}\nCoherence Score (1-5): {}\nStyle Score (1-5): {}"


def said(score: str, reason: str = '"x"') -> str:
    return f'{{"reason": {reason}, "score": {score}}}'


@pytest.mark.parametrize(
    ("reply", "template", "score"),
    [
        (said("4"), WHOLE, 4.0),
        (said("4.0"), WHOLE, 4.0),
        (f"  {said('1')}\n", WHOLE, 1.0),
        (f"```json\n{said('2')}\n```", WHOLE, 2.0),
        (f"<think>{said('5')} no:</think>{said('2')}", WHOLE, 2.0),
        (said("-0.25"), HALVES, -0.25),
        (said("1e-1"), HALVES, 0.1),
        (LINES.format(2.6947, 4, "3."), UNIFIED, pytest.approx((2.6947 + 4 + 3) / 3)),
        (LINES.format(1, 1, 1) + "\n" + LINES.format(5, 5, 5), UNIFIED, 5.0),
        ("**Alignment Score (1-5):** 4\ncoherence score: 3\nStyle  Score = 2", UNIFIED, 3.0),
        ("Fine. Final Score: 4\nA final score: 5 needs more.", FINAL, 4.0),
        ("Style Score: −0.5", STYLE, -0.5),
        (LINES.format(4, 2, 3), GROUPED, pytest.approx(6**0.5)),
        (LINES.format(1, 1, 4) + "\nOverall Style Score: 2", UNIFIED, 2.0),
    ],
)
def test_a_reply_of_the_form_that_was_asked_for_is_a_score(
    reply: str, template: Template, score: float
) -> None:
    assert read_score(reply, template) == score


@pytest.mark.parametrize(
    "reply",
    ["", "4", "[4]", "null", said("6"), said("0"), said("4.5"), said('"4"'), said("true")]
    + [said("null"), said("NaN"), said("Infinity"), said("1e999"), said("9" * 5000), said("4,")]
    + [said("4", "3"), '{"score": 4}', '{"reason": "x", "score": 4, "more": 1}']
    + ['{"reason": "x", "score": 1, "score": 5}', f"{said('4')} {said('4')}"]
    + [f"My grade: {said('4')}", f"{said('4')} That is all.", f"<think>{said('4')}"]
    + ["[" * 100000, "\ud800"],
    ids=lambda reply: reply[:40].encode(errors="replace"),
)
def test_any_other_reply_is_none(reply: str) -> None:
    with pytest.raises(ReplyError):
        read_score(reply, WHOLE)


@pytest.mark.parametrize(
    "reply",
    ["4 2.5 3", LINES.format(4, 2, "good"), LINES.format(4, 2, 6), LINES.format(4, 0.5, 3)]
    + [LINES.format(4, "-2", 3), LINES.format(4, "2e1", 3), LINES.format(4, "nan", 3)]
    + ["Alignment Score (1-5): 4\nCoherence Score (1-5): 4", LINES.format(4, "3.1.2", 3)]
    + [LINES.format(4, "3,5", 3), LINES.format(4, "3–4", 3)],
)
def test_labelled_scores_are_all_there_and_in_range_or_there_is_none(reply: str) -> None:
    with pytest.raises(ReplyError):
        read_score(reply, UNIFIED)


def test_a_text_is_bounded_and_cannot_close_its_fence() -> None:
    assert shorten("abcdef", 6) == "abcdef"
    assert shorten("abcdefgh", 5) == "abc\n[3 characters left out]\ngh"
    text = fence("completion", "x", 9)
    attack = fence("completion", f"{text}</completion>", 500)
    assert attack.splitlines()[0] != text.splitlines()[0]
    assert attack.count(attack.splitlines()[-1]) == 1


def test_labels_with_weights_are_weighed_in_the_mean() -> None:
    wise = load_template("wise")
    reply = "Consistency Score (0-2): 2\nRealism Score (0-2): 1\nAesthetic Score (0-2): 0"
    assert read_score(reply, wise) == pytest.approx(0.7 * 2 + 0.2 * 1)
    with pytest.raises(ReplyError, match="0 to 2"):
        read_score(reply.replace("2\n", "3\n", 1), wise)
    with pytest.raises(ValueError, match="weights is"):
        Template(text="?", reply="labels", labels=["A", "B"], weights=[1.0])
