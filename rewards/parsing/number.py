r"""Numbers as people write them, read exactly: `-1,234.5`, `3 1/2`, `\frac{2}{3}`, `6.6e-34`,
`0.\overline{3}`, `2 thirds`, `5 million`, `1010_2`, with a unit or without.

What follows a number and is neither part of it nor a unit ("or six", "over 4") makes it none.
"""

import re
from fractions import Fraction
from typing import NamedTuple

from mmrl.rewards.parsing.notation import spell
from mmrl.rewards.parsing.wording import NUMBERS, denies, split_words

_MOST_DIGITS = 400
"""Of a number and of what an exponent makes of it; a longer one has no value here."""
_NEAR = 200
"""Characters at the end of a text among which its unit is looked for."""
_WORDS = "|".join(NUMBERS)
_POWERS = {"hundred": 2, "thousand": 3, "million": 6, "billion": 9, "trillion": 12}
_PARTS = ("third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth")
_SCALES = {
    **{"dozen": Fraction(12), "half": Fraction(1, 2), "halve": Fraction(1, 2)},
    **{word: Fraction(10**n) for word, n in _POWERS.items()},
    **{f"{word}th": Fraction(1, 10**n) for word, n in _POWERS.items()},
    **{word: Fraction(1, n) for n, word in enumerate(_PARTS, 3)},
}
_SCALE = rf"(?:{'|'.join(_SCALES)})s?\b"
_DIGITS = r"(?:(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d*(?:\\overline\{\d+\}|\(\d+\))|\.\d+)?|\.\d+)"
_NUMBER = re.compile(
    r"(?<![\w^])(?<!\d\.)(?<![\^_]\{)(?<!\^-)(?<!\^\{-)(?<!sqrt\{)"
    r"(?P<sign>(?<![.)\]}%])[-+]|^[-+]\s+)?"
    rf"(?:(?:(?P<whole>\d+)\s+(?:and\s+)?)?(?P<top>{_DIGITS})\s?/\s?(?P<bottom>{_DIGITS})(?!/\d)"
    rf"|(?P<digits>{_DIGITS})(?:_(?P<sub>\{{)?(?P<base>\d+)(?(sub)\}})"
    r"|\^(?P<up>\{)?(?P<power>-?\d+)(?(up)\}))?"
    r"(?:e(?P<e>[-+]?\d+)\b|\s*(?:\\times|\\cdot|\*|x)\s*10\s*\^\s*(?P<ten>\{)?(?P<shift>[-+]?\d+)"
    rf"(?(ten)\}}))?)(?P<scale>(?:[\s-]+{_SCALE})*)(?P<percent>\s*\\?%|\s+percent\b)?",
    re.IGNORECASE,
)
_ATTACHED = re.compile(r"(?:[\w^{}!]|\\[A-Za-z])*")
_CHANGED = re.compile(
    rf"\s*(?:squared|cubed|(?:or|to|and)\s+(?:an?\s+)?(?:{_WORDS}|{_SCALE}))\b|(?!\^\s?\{{?\\circ)[!^\\]|[nxyz]\b",
    re.IGNORECASE,
)
"""What makes another number of the one before it."""
_RELATION = re.compile(r"[<>]|\\(?:le|ge|ne)q?(?![A-Za-z])")
_NO_UNIT = rf"(?:{_WORDS}|{_SCALE}|or|to|and|out|over|plus|minus|times|by|squared|cubed|half)\b"
_RAISED = r"(?:\s?\^\s?(?:\{-?\d\}|-?\d))?"
_SHORT = r"(?:[cmk]m|[mk]g|m[lL]|ft|in|yd|lbs?|oz|hrs?|min|[ap]m|mph|st|nd|rd|th)(?![A-Za-z])"
_UNIT = (
    rf"(?!{_NO_UNIT})(?:[A-Za-z]{{2,}}(?:-[A-Za-z]+)*\.?|[mgshlLVWJNKCF](?![A-Za-z])){_RAISED}"
    rf"(?:\s?/\s?[A-Za-z]+{_RAISED})*"
)
_UNITS = re.compile(
    rf"(?:{_SHORT}{_RAISED}|\s*\^\s?(?:\\circ|\{{\\circ\}})\s*[CFK]?)?(?:\s+{_UNIT})*\s*"
)
_LAST_UNITS = re.compile(
    rf"(?<=[\d}})i])(?:\s*\\(?:text|mathrm|mbox)\s*\{{\s*(?!{_NO_UNIT})[A-Za-z][^{{}}\d]*\}}{_RAISED}"
    rf"|\s+(?!{_NO_UNIT})[A-Za-z]{{2,}}\.?{_RAISED})+\s*$"
)
_PERCENT = re.compile(
    r"(?<!\s)\s*(?:\\?%|\\(?:text|mathrm|mbox)\{\s*(?:\\?%|percent)\s*\}|\bpercent\b)"
)
_MIXED = re.compile(r"(?<![\d.^/])(\d+)\s+(\d+)/(\d+)(?![\d/])")
_WRAPPED = re.compile(
    r"\\(?:text(?:rm|up|it|bf|normal)?|math(?:rm|bf|bb|it)|mbox|operatorname)\s*\{([^{}]*)\}"
)
_FRACTION = re.compile(rf"(?:(\d)\s*)?\\frac\{{\s*([-+]?{_DIGITS})\s*\}}\{{\s*({_DIGITS})\s*\}}")
_DELIMITER = re.compile(r"\$|\\[()\[\]]")
_NEGATIVE = re.compile(r"(?:\bnegative|^\s*minus)\s+(?=[\d.])", re.IGNORECASE)
_SPACED = re.compile(r"[-+]?\d{1,3}(?: \d{3})+(?:\.\d+)?")
_FIRST_WORD = re.compile(rf"^(?:{_WORDS})\b", re.IGNORECASE)
_WORD = re.compile(r"[a-z]+")


class Number(NamedTuple):
    """A number that a text states: its exact value, whether it has decimals, which may be
    rounded, whether it has a percent sign, and the base it names with its digits in that."""

    value: Fraction
    rounded: bool = False
    percent: bool = False
    base: int | None = None
    digits: str = ""


def unwrap(text: str) -> str:
    r"""A text in one spelling (`notation.spell`), without `\text{…}` and delimiters of mathematics,
    fractions of numbers with slashes."""
    text = _WRAPPED.sub(r" \1 ", _DELIMITER.sub("", spell(text)))
    text = _FRACTION.sub(lambda m: f"{m[1] + ' ' if m[1] else ''}{m[2]}/{m[3]}", text)
    return _NEGATIVE.sub("-", text)


def read_number(text: str) -> Number | None:
    """The number that a text is, with a unit or without; None for anything else."""
    text = unwrap(text).strip().removesuffix(".").strip()
    if _SPACED.fullmatch(text):
        text = text.replace(" ", "")
    text = _FIRST_WORD.sub(lambda m: str(NUMBERS.index(m[0].casefold())), text)
    found = _NUMBER.match(text)
    return _read(found) if found and _UNITS.fullmatch(text, found.end()) else None


def without_unit(text: str) -> str:
    """A text in one spelling (`notation.spell`), mixed numbers as sums, without percent signs and
    without a unit behind a number, a bracket or pi."""
    text = _PERCENT.sub("", spell(text)).strip().removesuffix(".")
    text = _MIXED.sub(r"(\1+\\frac{\2}{\3})", text)
    return text[:-_NEAR] + _LAST_UNITS.sub("", text[-_NEAR:])


def find_number(text: str) -> Number | None:
    """The one number that a text states; None for none, for several that differ, and where the
    text says what is not.

    Text before the last equals sign is ignored. Number words up to twenty count behind "or" and
    the like, and where there are no digits.
    """
    whole = read_number(text)
    if whole is not None:
        return whole
    end = unwrap(text).rpartition("=")[2].strip()
    found = list(_NUMBER.finditer(end))
    if (
        denies(split_words(text))
        or _RELATION.search(end)
        or any(_CHANGED.match(end, match.end()) for match in found)
    ):
        return None
    numbers = [_read(match) for match in found]
    if not found:
        words = set(_WORD.findall(end.casefold())).intersection(NUMBERS)
        numbers = [Number(Fraction(NUMBERS.index(word))) for word in words]
    return numbers[0] if len({number and number.value for number in numbers}) == 1 else None


def find_last(text: str) -> str | None:
    """The last number in a text as written, with what is attached to it."""
    text = unwrap(text)
    found = list(_NUMBER.finditer(text))
    attached = _ATTACHED.match(text, found[-1].end()) if found else None
    return found[-1][0] + attached[0] if attached else None


def equal(gold: Number, answer: Number) -> bool:
    r"""Whether an answer has the value of a reference: exactly, or, where one of them alone has
    decimals, to six of these and five digits. An answer without a base is in the reference's.

    A percent sign that only one has is the unit of its number, `60\%` and 60, or hundredths, `60\%`
    and 0.6; but more than 100 percent are no share, so that 6000 percent are not 60.
    """
    if gold.base is not None and answer.base in (None, gold.base):
        return gold.digits.lstrip("0") == answer.digits.lstrip("0")
    if gold.base is not None:
        return False
    pairs = [(gold.value, answer.value)]
    if gold.percent and not answer.percent:
        pairs.append((gold.value / 100, answer.value))
    if answer.percent and not gold.percent and abs(answer.value) <= 100:
        pairs.append((gold.value, answer.value / 100))
    rounded = gold.rounded != answer.rounded
    return any(
        one == other
        or (rounded and round(one - other, 6) == 0 and abs(one - other) * 10**5 <= abs(one))
        for one, other in pairs
    )


def _read(match: re.Match[str]) -> Number | None:
    if len(match[0]) > _MOST_DIGITS:
        return None
    try:
        value = _value(match)
    except (ValueError, ZeroDivisionError):
        return None
    for word in _WORD.findall(match["scale"].casefold()):
        value *= _SCALES.get(word) or _SCALES[word.removesuffix("s")]
    base = int(match["base"]) if match["base"] else None
    rounded = "." in match[0] and not re.search(r"overline|\(", match[0])
    value = -value if match["sign"] and "-" in match["sign"] else value
    return Number(value, rounded, bool(match["percent"]), base, match["digits"] or "")


def _value(match: re.Match[str]) -> Fraction:
    if match["bottom"]:
        return int(match["whole"] or 0) + _fraction(match["top"]) / _fraction(match["bottom"])
    if match["base"]:
        return Fraction(int(match["digits"].replace(",", ""), int(match["base"])))
    value, exponent = _fraction(match["digits"]), int(match["e"] or match["shift"] or 0)
    power = int(match["power"] or 1)
    if abs(exponent) > _MOST_DIGITS or abs(power) * len(match["digits"]) > _MOST_DIGITS:
        raise ValueError("more digits than are read")
    return value**power * Fraction(10) ** exponent


def _fraction(digits: str) -> Fraction:
    r"""The value of decimal digits, some of which may be repeated: `1.5`, `0.1\overline{6}`."""
    start, _, period = digits.replace(",", "").replace("(", r"\overline{").partition(r"\overline{")
    value, period = Fraction(start.removesuffix(".") or 0), period[:-1]
    if not period:
        return value
    decimals = len(start.partition(".")[2])
    return value + Fraction(int(period), 10**decimals * (10 ** len(period) - 1))
