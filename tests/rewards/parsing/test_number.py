"""Numbers as people write them: their exact values, and what is no number."""

from fractions import Fraction

import pytest

from mmrl.rewards.parsing.number import equal, find_number, read_number

READ = (
    [("3 1/2", "7/2"), (r"3\frac{1}{2}", "7/2"), (r"2\frac12", "5/2"), ("2 and 1/2", "5/2")]
    + [(r"-\frac{3}{4}", "-3/4"), ("½", "1/2"), ("2½", "5/2")]
    + [(r"6.6 \times 10^{-34}", "6.6e-34"), ("6.6×10⁻³⁴", "6.6e-34"), ("1e3", "1000")]
    + [("2^{10}", "1024"), (r"0.\overline{3}", "1/3"), ("0.1(6)", "1/6"), ("0.3̅", "1/3")]
    + [("2 thirds", "2/3"), (r"\text{two thirds}", "2/3"), ("5 hundredths", "1/20")]
    + [("5 trillion", "5e12"), ("3 million dollars", "3e6"), ("5 dozen eggs", "60")]
    + [("five apples", "5"), ("minus 5", "-5"), ("−5", "-5"), ("–5", "-5"), ("- 5", "-5")]
    + [("-$5", "-5"), ("$-5", "-5"), ("€5", "5"), ("$1,234.50", "1234.5")]
    + [("1 000 000", "1000000"), (r"1\,234", "1234"), ("1{,}234", "1234")]
    + [(r"10,\!080", "10080"), ("２５", "25"), ("12.5 cm^2", "12.5")]
    + [(r"12.5\text{ cm}^2", "12.5"), ("5 m/s^2", "5"), ("12 m²", "12"), ("12cm", "12")]
    + [("45°", "45"), (r"45^{\circ}", "45"), (r"20^\circ\text{C}", "20")]
    + [("5 changes/day", "5"), ("1010_2", "10"), ("1010₂", "10"), (r"\frac{7}{1}\%", "7")]
)


@pytest.mark.parametrize(("text", "value"), READ)
def test_a_number_has_its_exact_value(text: str, value: str) -> None:
    number = read_number(text)
    assert number is not None and number.value == Fraction(value)


@pytest.mark.parametrize(
    "text",
    ["5 or six", "5 or 6", "5 squared", "5 and a half", "5 out of 6", "3x", "5t", "5!", "2:00 pm"]
    + ["3:4", "x = 5", "1,23", "10/10/2024", "3/0", "1e99999", "9" * 5000, "129_8", "5 < x", ""],
)
def test_what_is_more_than_a_number_is_none(text: str) -> None:
    assert read_number(text) is None


@pytest.mark.parametrize(
    ("text", "value"),
    [("Juice Box C is 2 dollars more than Juice Box B.", "2")]
    + [("The rope is 12.5 cm^2 large", "12.5"), ("H2O weighs 18", "18"), ("12 - 7 = 5", "5")]
    + [("x² = 25", "25"), ("five", "5"), ("about 5 to 6", None), ("5 or six", None)]
    + [("it is 5 squared", None), ("5 < x", None), ("it is not 5", None), ("4–5", None)]
    + [("", None)],
)
def test_a_sentence_states_one_number_or_none(text: str, value: str | None) -> None:
    number = find_number(text)
    assert (number and number.value) == (value and Fraction(value))


@pytest.mark.parametrize(
    ("gold", "answer", "same"),
    [("1/3", "0.333333", True), ("1/3", "0.33333", False), ("0.3333333", "0.333333", False)]
    + [("1/3000000", "0.0000003", False), ("1.1e-34", "6.6e-34", False)]
    + [("2516_8", "2516", True), ("2516_8", "2516_7", False), ("10", "1010_2", True)]
    + [("1010", "1010_2", False)],
)
def test_decimals_count_to_six_places_all_else_exactly(gold: str, answer: str, same: bool) -> None:
    one, other = read_number(gold), read_number(answer)
    assert one is not None and other is not None and equal(one, other) is same
