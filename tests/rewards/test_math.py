"""The math reward: equivalence, credit, and answers that hang the verifier."""

import logging
import os
import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest

from mmrl.rewards import build_reward
from mmrl.rewards.math import MathReward, read_reference
from mmrl.rewards.parsing.verifier import VerifierError
from mmrl.types import Sample


@pytest.fixture(scope="module")
def reward() -> Iterator[MathReward]:
    reward = MathReward(timeout=2.0)
    yield reward
    reward.verifier.close()


def score(reward: MathReward, answer: Any, completion: str) -> float | None:
    return reward([Sample("question", completion, {"answer": answer})])[0]


@pytest.mark.parametrize(
    ("answer", "completion"),
    [(18.0, r"</reasoning> <answer> \boxed{18}")]
    + [("18", "18 dollars in all: <answer>18 dollars</answer>")]
    + [("Natalia sold 48+24 = 72.\n#### 72", "#### 72")]
    + [(r"We get $\boxed{\frac{1}{2}}$.", r"\boxed{0.5}"), (6277, r"\boxed{6,277}")]
    + [(r"\frac{639}{40}", r"\boxed{15.975} \text{ inches}")]
    + [(r"10,\!080", r"\boxed{7! \times 2!}"), (r"\text{(C)}", r"\boxed{C}")]
    + [(r"x \in [-2,7]", r"\boxed{[-2, 7]}"), (r"-2 + 7i", r"\boxed{7i - 2}")]
    + [("3, 5, 7", r"\boxed{3, 7, 5}"), (r"\$36", r"\boxed{36.00}")]
    + [("81", "so the number is 81.\n</reasoning>")]
    + [("27.0", "</reasoning>\n<answer>\nboxed{27}\n</answer>")]
    + [("18.0", "</reasoning>\n\n<answer>\n\\.boxed{18}\n</answer>")]
    + [("32.0", "</reasoning>\n<answer>\n\\boxed{}32\n</answer>"), ("7/2", r"\boxed{3 1/2}")]
    + [("1.75", "<answer>1 3/4</answer>"), (r"\frac{7}{2}, 2", r"\boxed{3 1/2, 2}")]
    + [("-12", "The result is −12."), ("3/4", "The probability is 3/4.")]
    + [("25", "#### Step 1 a\n#### Step 2\nThe sum is 25."), ("73", "<answer>**73**</answer>")]
    + [("1/3", r"\boxed{0.\overline{3}}"), ("12", "\\boxed{12 cm^2}")]
    + [(r"45^\circ", "\\boxed{45°}"), (r"12 \text{ m}^2", "\\boxed{12 m²}")]
    + [(r"\$5", "\\boxed{€5}"), ("5", "\\boxed{£5}"), (r"\sqrt{3}", "\\boxed{√3}")]
    + [("x^2", "\\boxed{x²}"), (r"\frac{1}{2}", "\\boxed{½}")]
    + [(r"(-\infty, 2]", "\\boxed{(−∞, 2]}")]
    + [(r"\left(3, \frac{\pi}{2}\right)", "\\boxed{(3, π/2)}")]
    + [(r"16\pi", "\\boxed{16π square inches}"), (r"2\pi", r"\boxed{2\pi \text{ cm}}")]
    + [("2", "\\boxed{Juice Box C is 2 dollars more than Juice Box B.}")]
    + [("1000000", r"\boxed{1\,000\,000}")]
    + [("360", "in one day is \\boxed{360\\text{ hours} hours.\n</answer>")],
)
def test_an_equivalent_answer_is_right(reward: MathReward, answer: Any, completion: str) -> None:
    assert score(reward, answer, completion) == 1.0


@pytest.mark.parametrize(
    ("answer", "completion"),
    [("3", r"\boxed{\sqrt{3}}"), ("3", r"<answer>16 \sqrt{3}</answer>"), ("3", r"\boxed{3x}")]
    + [("3", r"\boxed{3 million}"), ("2", r"\boxed{\frac{2}{3}} dollars")]
    + [("2", r"\boxed{2:00 pm}"), ("5", r"\boxed{5 or 6}"), ("[-2,7]", r"\boxed{(-2, 7)}")]
    + [("12", r"first 12, then \boxed{125"), ("", ""), ("12", "   ")]
    + [("12", "\\boxed{" + "1+" * 5000 + "1}"), ("5", r"So \boxed{5}. Wait, so \boxed{7")]
    + [("360", r"in one day is \boxed{360\text{ hours} hours."), ("2", r"\boxed{3 1/2}")]
    + [("1", "<answer>1 3/4</answer>"), ("12", "The result is −12.")]
    + [("4", "The probability is 3/4."), ("4", r"It is $\frac{3}{4}$.")]
    + [("2", r"\boxed{2 thirds}"), ("5", r"\boxed{5 hundredths}")]
    + [("5", r"\boxed{5\text{ trillion}}"), ("5", r"\boxed{5 or six}"), ("5", r"\boxed{not 5}")]
    + [(r"1.1 \times 10^{-34}", r"\boxed{6.6 \times 10^{-34}}")]
    + [("(1/6)^{31}", r"\boxed{(1/6)^{30}}"), ("(1/6)^{31}, 5", r"\boxed{(1/6)^{30}, 5}")]
    + [("1-2^{-61}", r"\boxed{1-2^{-60}}")]
    + [(r"\frac{10^{40}+1}{10^{40}}", r"\boxed{\frac{10^{40}+2}{10^{40}}}")]
    + [(r"\sqrt{2}\times 10^{-20}", r"\boxed{\sqrt{3}\times 10^{-20}}")]
    + [("10^{-20}x", r"\boxed{10^{-21}x}"), ("1010_2", r"\boxed{1010_3}"), ("5t", r"\boxed{5}")]
    + [("5", r"\boxed{5t}"), ("1234", r"\boxed{1.234}")]
    + [(r"n \text{ odd}", r"\boxed{n \text{ even}}")],
)
def test_any_other_answer_and_none_are_worth_nothing(
    reward: MathReward, answer: Any, completion: str
) -> None:
    assert score(reward, answer or "12", completion) == 0.0


def test_partial_credit_is_for_marked_answers_and_off_by_default() -> None:
    generous = MathReward(partial=0.1)
    assert score(generous, "5", r"\boxed{6}") == 0.1
    assert score(generous, "5", "about 6") == 0.0
    assert score(generous, "5", r"\boxed{5}") == 1.0
    assert score(MathReward(), "5", r"\boxed{6}") == 0.0


def test_an_answer_that_hangs_the_verifier_is_wrong_and_the_next_ones_are_judged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    reward = MathReward(timeout=0.5)
    samples = [
        Sample("q", completion, {"answer": r"\frac{1}{2}"})
        for completion in (r"\boxed{9^{9^{9^{9}}}-1}", r"\boxed{0.5}", r"\boxed{123456789!!}")
    ]
    start = time.monotonic()
    with caplog.at_level(logging.WARNING):
        scores = reward(samples)
    assert scores == [0.0, 1.0, 0.0]
    assert "gave up after 0.5 s" in caplog.text
    assert time.monotonic() - start < 60
    reward.verifier.close()


def test_a_verifier_killed_from_outside_is_a_failure_and_is_replaced(reward: MathReward) -> None:
    assert score(reward, "x+1", r"\boxed{1+x}") == 1.0
    process = reward.verifier._process
    assert process is not None
    os.kill(process.pid, signal.SIGSTOP)  # it must not read the request before it dies
    signal.signal(signal.SIGALRM, lambda *_: os.kill(process.pid, signal.SIGKILL))
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    with pytest.raises(VerifierError, match="exit status -9"):
        score(reward, "x+1", r"\boxed{1+x}")
    assert score(reward, "x+1", r"\boxed{1+x}") == 1.0


def test_references_are_read_from_boxes_hashes_and_numbers() -> None:
    assert read_reference(r"so \boxed{\frac{1}{2}}") == r"\frac{1}{2}"
    assert read_reference("3+4\n#### 7") == "7"
    assert read_reference(18.0) == "18" and read_reference(0.25) == "0.25"


@pytest.mark.parametrize(
    ("completion", "answer", "exact", "string"),
    [
        ("<answer>72</answer>", "48+24 = 72\n#### 72", 1.0, 1.0),
        ("<answer> 72.0 </answer>", "72", 0.0, 0.0),
        (r"\boxed{\dfrac12}", r"so \boxed{\frac{1}{2}}", 0.0, 1.0),
        (r"\boxed{0.5}", r"\frac{1}{2}", 0.0, 1.0),
        (r"\boxed{1/2}", r"\frac{1}{2}", 0.0, 1.0),
        (r"\boxed{0.25}", r"\frac{1}{4}", 0.0, 0.0),
        (r"\boxed{x = 5\text{ cm}}", "5", 0.0, 1.0),
        (r"\boxed{\sqrt3}", r"\sqrt{3}", 0.0, 1.0),
        (r"\boxed{90^\circ}", "90", 0.0, 1.0),
        (r"\boxed{.5\%}", r"\frac{1}{2}", 0.0, 1.0),
        (r"\boxed{\left( 3, 4 \right)}", "(3,4)", 0.0, 1.0),
        (r"\boxed{a/b}", "a/b", 1.0, 1.0),
        (r"\boxed{a/b}", r"a /b", 0.0, 0.0),  # where a rule fails the strings count
        ("72", "72", 0.0, 0.0),
    ],
)
def test_answers_may_be_compared_as_strings_as_d1_does(
    completion: str, answer: str, exact: float, string: float
) -> None:
    for match, expected in (("exact", exact), ("string", string)):
        entry = {"name": "math", "match": match, "sources": ["boxed", "answer"]}
        assert build_reward(entry)([Sample("q", completion, {"answer": answer})]) == [expected]


SAME = (
    [("60", r"60\%"), ("60.0", r"60\%"), ("10", r"10.0\%"), ("60.0", "60%")]
    + [("60", r"60\,\%"), ("60", r"$60\%$"), ("60.0", "60 percent")]
    + [("60.0", r"60\text{ percent}"), ("60", r"60\% \text{ of the students}")]
    + [("1,250", r"1250\%"), ("10, 20", r"10\%, 20\%"), ("12.5", r"12\frac{1}{2}\%")]
    + [(r"60\%", "60"), ("60.0%", "60"), (r"60\%", "60.0%"), (r"60\%", "0.6")]
    + [("60.0%", "0.60"), (r"150\%", "1.5"), (r"60\%", r"\frac{3}{5}")]
    + [(r"\frac{100}{3}\%", r"\frac{1}{3}"), ("0.6", r"60\%"), (r"\frac{3}{5}", r"60.0\%")]
    + [("3/5", "60%"), ("1", r"100\%"), ("-0.2", r"-20\%"), ("0.6", r"0.6\%")]
    + [(r"\frac{1}{3}", r"33\frac{1}{3}\%"), ("100", "100 percent")]
)


@pytest.mark.parametrize(("answer", "written"), SAME)
def test_a_sign_is_the_unit_of_a_number_or_stands_for_hundredths(
    reward: MathReward, answer: str, written: str
) -> None:
    assert score(reward, answer, rf"\boxed{{{written}}}") == 1.0


DIFFERENT = (
    [("60", "0.6"), ("60", r"6000\%"), ("12.5", r"1,250\%"), ("60", r"-60\%"), ("6", r"60\%")]
    + [("0.6", r"6\%"), ("1.5", r"150\%"), (r"60\%", "6"), (r"60\%", "6000")]
    + [(r"60\%", r"0.6\%"), (r"60\%", "0.006"), (r"60\%", r"\%")]
    + [("10", r"10\% \text{ of } 50"), ("15", r"10\%-20\%")]
)


@pytest.mark.parametrize(("answer", "written"), DIFFERENT)
def test_no_sign_turns_another_number_into_the_reference(
    reward: MathReward, answer: str, written: str
) -> None:
    assert score(reward, answer, rf"\boxed{{{written}}}") == 0.0
