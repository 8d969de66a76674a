r"""Equality of mathematical answers as strings, by the rules of MATH (Hendrycks et al. 2021).

d1 and MaskGRPO reward MATH by it. It knows neither values nor algebra: `0.5` and `\frac12` are
equal, `0.25` and `\frac14` are not. Where a rule cannot be applied, the strings are compared
unchanged.
"""

import re

_DELETED = ("\n", r"\!")
_AFTER_BACKSLASHES = (r"\left", r"\right", r"^{\circ}", r"^\circ", r"\$")
_UNIT = r"\text{ "
_ROOT = re.compile(r"\\sqrt([^{])")
_FRACTION = re.compile(r"\\frac([^{])(?:([^{])|(?=\{))")


def equal_strings(one: str, other: str) -> bool:
    """Whether two answers are written alike up to MATH's rules."""
    try:
        return normalise(one) == normalise(other)
    except ValueError:
        return one == other


def normalise(text: str) -> str:
    """An answer in MATH's canonical spelling. Raises ValueError: a rule cannot be applied."""
    for part in _DELETED:
        text = text.replace(part, "")
    text = text.replace("\\\\", "\\").replace("tfrac", "frac").replace("dfrac", "frac")
    for part in _AFTER_BACKSLASHES:
        text = text.replace(part, "")
    if text.count(_UNIT) > 1:
        raise ValueError("two units")
    text = text.partition(_UNIT)[0].replace(r"\%", "")
    text = text.replace(" .", " 0.").replace("{.", "{0.")
    if not text:
        return text
    text = f"0{text}" if text[0] == "." else text
    sides = text.split("=")
    text = sides[1] if len(sides) == 2 and len(sides[0]) <= 2 else text
    text = _ROOT.sub(r"\\sqrt{\1}", text).replace(" ", "")
    text = _FRACTION.sub(lambda m: rf"\frac{{{m[1]}}}" + (rf"{{{m[2]}}}" if m[2] else ""), text)
    return _spell_quotient(r"\frac{1}{2}" if text == "0.5" else text)


def _spell_quotient(text: str) -> str:
    r"""`1/2` as `\frac{1}{2}`, of whole numbers alone."""
    parts = text.split("/")
    if len(parts) != 2:
        return text
    if not all(re.fullmatch(r"\s*[+-]?\d+\s*", part) for part in parts):
        raise ValueError("no whole numbers")
    top, bottom = (str(int(part)) for part in parts)
    return rf"\frac{{{top}}}{{{bottom}}}" if text == f"{top}/{bottom}" else text
