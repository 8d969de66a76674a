r"""Equality of mathematical answers as strings, by the rules of MATH (Hendrycks et al. 2021).

d1 and MaskGRPO reward MATH by it. It knows neither values nor algebra: `0.5` and `\frac12` are
equal, `0.25` and `\frac14` are not. Where a rule cannot be applied, the strings are compared
unchanged.
"""

import re

_DELETED = ("\n", r"\!")
_AFTER_BACKSLASHES = (r"\left", r"\right", r"^{\circ}", r"^\circ", r"\$")
_UNIT = r"\text{ "


def equal_strings(one: str, other: str) -> bool:
    """Whether two answers are written alike up to MATH's rules."""
    try:
        return normalise(one) == normalise(other)
    except (ValueError, IndexError):
        return one == other


def normalise(text: str) -> str:
    """An answer in MATH's canonical spelling.

    Raises:
        ValueError, IndexError: a rule cannot be applied.
    """
    for part in _DELETED:
        text = text.replace(part, "")
    text = text.replace("\\\\", "\\").replace("tfrac", "frac").replace("dfrac", "frac")
    for part in _AFTER_BACKSLASHES:
        text = text.replace(part, "")
    text = _without_unit(text).replace(r"\%", "")
    text = text.replace(" .", " 0.").replace("{.", "{0.")
    if not text:
        return text
    text = f"0{text}" if text[0] == "." else text
    sides = text.split("=")
    text = sides[1] if len(sides) == 2 and len(sides[0]) <= 2 else text
    text = _spell_fractions(_spell_roots(text).replace(" ", ""))
    return _spell_quotient(r"\frac{1}{2}" if text == "0.5" else text)


def _without_unit(text: str) -> str:
    parts = text.split(_UNIT)
    if len(parts) > 2:
        raise ValueError("two units")
    return parts[0]


def _spell_roots(text: str) -> str:
    r"""`\sqrt3` as `\sqrt{3}`."""
    first, *others = text.split(r"\sqrt")
    return first + "".join(
        rf"\sqrt{part}" if part[0] == "{" else rf"\sqrt{{{part[0]}}}{part[1:]}" for part in others
    )


def _spell_fractions(text: str) -> str:
    r"""`\frac12` and `\frac1{2}` as `\frac{1}{2}`."""
    first, *others = text.split(r"\frac")
    spelled = first
    for part in others:
        if part[0] == "{":
            spelled += rf"\frac{part}"
        elif len(part) < 2:
            return text
        elif part[1] == "{":
            spelled += rf"\frac{{{part[0]}}}{part[1:]}"
        else:
            spelled += rf"\frac{{{part[0]}}}{{{part[1]}}}{part[2:]}"
    return spelled


def _spell_quotient(text: str) -> str:
    r"""`1/2` as `\frac{1}{2}`, of whole numbers alone."""
    parts = text.split("/")
    if len(parts) != 2:
        return text
    if not all(re.fullmatch(r"\s*[+-]?\d+\s*", part) for part in parts):
        raise ValueError("no whole numbers")
    top, bottom = (str(int(part)) for part in parts)
    return rf"\frac{{{top}}}{{{bottom}}}" if text == f"{top}/{bottom}" else text
