r"""One spelling for the signs of mathematics: the LaTeX of Unicode, one minus, one space."""

import re
import unicodedata

_DASHES = dict.fromkeys("−‐‑–—﹣－", "-")
_SPACES = dict.fromkeys("\u00a0\u2002\u2003\u2007\u2009\u200a\u202f", "\u2009")
_COMMANDS = {
    **{"×": "times", "÷": "div", "·": "cdot", "∞": "infty", "π": "pi", "θ": "theta", "±": "pm"},
    **{"≤": "le", "≥": "ge", "≠": "ne", "∪": "cup", "∩": "cap", "∈": "in", "∅": "emptyset"},
}
_LATEX = {sign: rf"\{name} " for sign, name in _COMMANDS.items()}
_SIGNS = str.maketrans(
    {**_DASHES, **_SPACES, **_LATEX, "°": r"^\circ ", "⁄": "/"} | dict.fromkeys("€£¥₹", "")
)
_WIDE = re.compile("[！-～]+")
_RAISED = re.compile("[⁰¹²³⁴-⁹⁺⁻]+")
_LOWERED = re.compile("[₀-₉]+")
_VULGAR = re.compile("[¼-¾⅐-⅞↉]")
_ROOT = re.compile(r"√\s*(?:\(([^()√]*)\)|(\d+(?:\.\d+)?|[A-Za-z]))")
_BARRED = re.compile("((?:\\d\u0305)+)")
_THIN = re.compile("(?<=\\d)(?:\u2009|\\\\[,;:]|')(?=\\d{3}(?!\\d))|\\{,\\}")
_BLANK = re.compile("\u2009|(?<!\\\\)\\\\[,;: ]|~|\\\\q?quad\\b")
_MARKS = re.compile(r"(?<!\\)\\!|\\(?:left|right)(?![A-Za-z])|\\\$|\\(?:euro|pounds)(?![A-Za-z])")
_SHORT_FRACTION = re.compile(r"\\[dtc]?frac\s*(?:(\d)|\{([^{}]*)\})\s*(?:(\d)|\{([^{}]*)\})")


def spell(text: str) -> str:
    """A text whose signs are ASCII or LaTeX, without currencies, and with commas between thousands
    that thin spaces separate."""
    text = _WIDE.sub(lambda m: unicodedata.normalize("NFKC", m[0]), text)
    text = _RAISED.sub(lambda m: f"^{{{_plain(m[0])}}}", text)
    text = _LOWERED.sub(lambda m: f"_{{{_plain(m[0])}}}", text)
    text = _VULGAR.sub(lambda m: rf"\frac{{{_plain(m[0]).replace('⁄', '}{')}}}", text)
    text = _BARRED.sub(lambda m: rf"\overline{{{m[0].replace(chr(0x305), '')}}}", text)
    text = _ROOT.sub(lambda m: rf"\sqrt{{{m[1] or m[2]}}}", text).translate(_SIGNS)
    text = _BLANK.sub(" ", _THIN.sub(",", _MARKS.sub("", text)))
    return _SHORT_FRACTION.sub(lambda m: rf"\frac{{{m[1] or m[2]}}}{{{m[3] or m[4]}}}", text)


def _plain(text: str) -> str:
    return unicodedata.normalize("NFKC", text).replace("−", "-")
