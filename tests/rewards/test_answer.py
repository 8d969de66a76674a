"""The answer reward: which of the choices is meant, and when none is; short answers by words."""

from typing import Any

import pytest

from mmrl.rewards import build_reward
from mmrl.rewards.parsing.choices import read_choices
from mmrl.types import Sample

COUNTS = ["One", "Two", "Three", "Four"]
COLORS = ["red", "dark red", "a blue and red one", "not visible"]


def score(
    completion: str, answer: Any, choices: list[str] | None = None, prompt: str = "?", **rest: Any
) -> Any:
    metadata = {"answer": answer, **rest} | ({} if choices is None else {"choices": choices})
    (found,) = build_reward({"name": "answer"})([Sample(prompt, completion, metadata)])
    return found


@pytest.mark.parametrize(
    "completion",
    ["B", "b", "(B)", "B.", " B\n", "**B**", "B)", "B. Two", "B: two", "(B) Two.", "Option B"]
    + ["The answer is B.", "Answer: B", "answer: b", "the answer is (b)."]
    + ["The answer is **B**.", "I choose B.", "The correct option is B because A is too few."]
    + ["Two", "two.", "2", "There are two towels.", "<think>A or C?</think>B", r"so \boxed{B}"]
    + [r"\boxed{\text{(B)}}", "A. is wrong. <answer>B</answer>", "A or B? <answer>two</answer>"]
    + ["The answer is B, not A.", "A towel hangs on each side, so B."]
    + ["It must be B: two towels.", "The answer is B. The answer is B."]
    + ["One here, three there. The answer is two.", "Three? No. Answer: two"],
)
def test_the_choice_that_is_named_counts(completion: str) -> None:
    for answer in ("B", "Two", "two"):
        assert score(completion, answer, COUNTS) == 1.0
    assert score(completion, "C", COUNTS) == 0.0


@pytest.mark.parametrize(
    "completion",
    ["", "   ", "E", "Five", "I do not know.", "A or B", "A, B", "A and B", "B or A", "B/C"]
    + ["The answer is A or B.", "The answer is B, A.", "The answer is B and C."]
    + ["The answer is A. The answer is B.", "B. Three", "The answer is B. Three", "not B"]
    + ["It is not B.", "The answer is not B.", "There are not two.", "two or three"]
    + ["One, two, three, four", "A B C D", "Any of (A), (B), (C), (D).", r"\boxed{A, B}"]
    + [r"B, so \boxed{", "<answer>B", "<think>The answer is B", "<answer></answer>"]
    + ["isn't it B?", "neither A nor B", "BB", "Answer:", "Three. The answer is not two."]
    + ["The answer is two. The answer is three.", "One or three. The answer is two or so, one."],
)
def test_who_names_none_several_or_what_it_is_not_has_not_answered(completion: str) -> None:
    assert [score(completion, letter, COUNTS) for letter in "ABCD"] == [0.0] * 4


@pytest.mark.parametrize(
    ("completion", "right"),
    [("The car is dark red.", "B"), ("It is red.", "A"), ("A red one", "A")]
    + [("It is a blue and red one.", "C"), ("It is not visible.", "D")]
    + [("It is not red.", None), ("The answer is A blue and red one.", "C")]
    + [("The answer is a blue and red one.", "C"), ("The answer is a", "A"), ("A", "A")]
    + [("A, red", "A"), ("A dark red one", "B")],
)
def test_words_of_choices_are_told_from_one_another_and_from_articles(
    completion: str, right: str | None
) -> None:
    found = [letter for letter in "ABCD" if score(completion, letter, COLORS)]
    assert found == ([right] if right else [])


@pytest.mark.parametrize(
    ("completion", "right"),
    [("Yes, there is a circle.", "A"), ("No, there is no circle.", "B"), ("no", "B")]
    + [("No. Yes.", None), ("Yes and no.", None)],
)
def test_yes_and_no_may_be_explained_but_not_both_given(completion: str, right: str | None) -> None:
    assert [x for x in "AB" if score(completion, x, ["Yes", "No"])] == ([right] if right else [])
    assert score(completion, "Yes") == float(right == "A")
    assert score(completion, "no") == float(right == "B")


PICTURE = ["dog", "cat", "boy", "car"]


@pytest.mark.parametrize(
    "completion",
    ["B. There is no dog in the picture.", "B, because the others are not visible"]
    + ["(B) The animal isn't barking", "B - no dog here", "b) no dog"]
    + ["Option B: there is no dog", "There is no dog in the picture.\nB"]
    + ["There is no dog, so B.", "Therefore, it is B.", "B is correct because there is no dog"]
    + ["I'd go with B, not A.", 'The answer is: "B". There is no dog.']
    + ["The correct answer would be B. No dog is there.", "A. is wrong\nB. is right"]
    + ["A. dog: not there\nB. cat: there\nAnswer: B", "A cat. There is no dog in the picture."]
    + ["Cat, because there is no dog", "The answer is the cat. There is no dog."],
)
def test_the_stated_choice_wins_over_the_words_that_explain_it(completion: str) -> None:
    assert [x for x in "ABCD" if score(completion, x, PICTURE)] == ["B"]


@pytest.mark.parametrize(
    "completion",
    ["A. is wrong.", "(B) is not correct.", "B. dog", "A. dog\nB. cat", "There is no dog"],
)
def test_a_letter_that_is_only_spoken_about_is_not_stated(completion: str) -> None:
    assert [x for x in "ABCD" if score(completion, x, PICTURE)] == []


@pytest.mark.parametrize(
    ("completion", "right"), [("A", "A"), ("B. A", "B"), ("(B) A", "B"), ("The answer is A", "A")]
)
def test_a_letter_is_a_label_before_it_is_the_text_of_a_choice(completion: str, right: str) -> None:
    letters = ["B", "A", "D", "C"]
    assert [x for x in "ABCD" if score(completion, x, letters)] == [right]


def test_the_choices_of_a_seed_bench_question_are_read_from_its_text() -> None:
    prompt = (
        "How many towels are in the image?Select the correct answer from options A, B, C, or D."
        " Respond with only the letter (A, B, C, or D).\nA.One\nB.Two\nC.Three\nD.Four"
    )
    assert read_choices(prompt) == COUNTS
    assert score("There is one.", "A", prompt=prompt) == 1.0
    assert score("The answer is B.", "B", prompt=prompt) == 1.0
    assert score("A or B", "B", prompt=prompt) == 0.0
    assert read_choices("A. one line is no list") is None
    assert read_choices("C. x\nA. old\n\nA) one\nB) two\nD) four") == ["one", "two"]


@pytest.mark.parametrize(
    ("completion", "answer"),
    [("red", "Red"), ("Red.", "red"), ("the red car", "a red car"), ("3", "three")]
    + [("Three!", 3), ("1,200", "1200"), ("The answer is red.", "red")]
    + [("Answer: left of\nthe ring", "left of")]
    + [(r"It looks blue, but \boxed{\text{red}}", "red"), ("<think>blue?</think> red", "red")]
    + [("2.5", "2.5"), ("-3", "-3"), ("left-hand side", "left hand side")]
    + [("don’t know", "don't know"), ("A", "a"), ("The answer is B.", "B")],
)
def test_a_short_answer_is_right_whatever_its_spelling(completion: str, answer: Any) -> None:
    assert score(completion, answer) == 1.0


@pytest.mark.parametrize(
    ("completion", "answer"),
    [("red or blue", "red"), ("not red", "red"), ("It could be red, blue or green", "red")]
    + [("The answer is red. The answer is blue.", "red"), ("The answer is not red.", "red")]
    + [("", "red"), ("25", "2.5"), ("3", "-3"), ("13", "3"), (r"red \boxed{blue}", "red")]
    + [(r"red \boxed{", "red")],
)
def test_a_short_answer_that_says_more_or_else_is_wrong(completion: str, answer: Any) -> None:
    assert score(completion, answer) == 0.0


def test_one_of_several_right_answers_is_enough() -> None:
    for said, right in (("4/3", True), ("1.33", True), ("1.34", False)):
        assert score(said, "4/3", answers=["1.33"]) == float(right)
    assert score("C", "A", COUNTS, answers=["C"]) == 1.0 and score("B", "A", COUNTS) == 0.0


@pytest.mark.parametrize(
    ("completion", "answer", "decimals", "right"),
    [("5", "5", 0, True), ("5.0", "5", 0, True), ("The answer is 5.", "5", 0, True)]
    + [("The rope is 5 cm long.", "5", 0, True), ("five", "5", 0, True)]
    + [("It is not 5.", "5", 0, False), ("15", "5", 0, False), ("-5", "5", 0, False)]
    + [("5 or 6", "5", 0, False), ("The answer is 6. The answer is 5.", "5", 0, False)]
    + [("12 - 7 = 5", "5", 0, True), ("none", "5", 0, False), ("1.23", "1.2", 1, True)]
    + [("1.26", "1.2", 1, False), ("$1,234.50", "1234.5", 2, True), (".5", "0.5", 2, True)]
    + [("50%", "50", 2, True), ("-0.5", "-.50", 2, True), ("1e3", "1000", 2, True)]
    + [("−5", "5", 0, False), ("−5", "-5", 0, True), ("12.5 cm^2", "12.5", 1, True)]
    + [(r"\boxed{12.5\text{ cm}^2}", "12.5", 1, True), ("5 m/s^2", "5", 1, True)]
    + [("The answer is 5. There is no remainder.", "5", 0, True), ("1 3/4", "1.75", 2, True)]
    + [("5 or six", "5", 0, False), ("9" * 400, "5", 2, False), ("red", "Red", 2, True)]
    + [("[2007, 2008]", "[2007, 2008]", 2, True)],
)
def test_a_number_is_right_to_as_many_decimals_as_count(
    completion: str, answer: str, decimals: int, right: bool
) -> None:
    assert score(completion, answer, precision=decimals) == float(right)


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({"answer": " "}, "answer is empty"),
        ({"answer": "E", "choices": COUNTS}, "neither a letter up to D nor one of the choices"),
        ({"answer": "A", "choices": [1, 2]}, "must be a list of 2 to 26 texts"),
        ({"answer": "5", "precision": -1}, "precision is -1; it must be a number of decimals"),
        ({"answer": "5", "answers": "6"}, "answers is '6'; it must be a list"),
        ({"answer": "A", "answers": ["E"], "choices": COUNTS}, "answer='E' is neither a letter"),
    ],
)
def test_an_answer_that_is_no_choice_is_found_beforehand(metadata: dict, message: str) -> None:
    reward: Any = build_reward({"name": "answer"})
    for ask in (lambda: reward.check(metadata), lambda: reward([Sample("?", "B", metadata)])):
        with pytest.raises(ValueError, match=message):
            ask()
    reward.check({"answer": "B", "choices": COUNTS})
    reward.check({})


def test_hostile_completions_are_read_in_time() -> None:
    for text in ("The answer is " * 3000, "(" * 30000, "A " * 20000, "*" * 30000, "two " * 9000):
        assert score(text, "B", COUNTS) in (0.0, 1.0)
        assert score(text, "red") == 0.0
    for text in ("1" * 40000, "1," * 20000, "-" * 40000, "1 " * 20000, "=" * 40000, "$-" * 20000):
        assert score(text, "5", precision=0) == 0.0
