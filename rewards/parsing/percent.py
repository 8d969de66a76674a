r"""The meaning of a percent sign if only one of reference and answer has it.

An answer's sign is the unit of its number: `60\%` and 60 are the same answer to a question for a
percentage, whose reference may or may not have the sign, as the graders of MATH and GSM8K have it.
It may also mean hundredths: `60\%` is 0.6 or 3/5 where the reference is a share, and a reference of
`60\%` may be answered by 0.6. A number of more than 100 percent is no share: 6000 percent are not
60, nor are 150 percent 1.5, because such a reference without a sign is a percentage itself.
"""

import re
from decimal import Decimal

from mmrl.rewards.parsing.number import read_number

_WORD = r"\\(?:text|textrm|textup|mathrm|mbox)\s*\{\s*(?:\\?%|percent)\s*\}|\bpercent\b"
_SIGN = re.compile(rf"(?:\\[,;:! ]|[~\s])*(?:\\?%|{_WORD})", re.IGNORECASE)


def list_readings(gold: str, written: str) -> list[tuple[str, str]]:
    """What is to be compared, as pairs of reference and answer; one that is equal is enough.

    Args:
        gold: the reference.
        written: the answer.
    """
    reference, answer = _SIGN.sub("", gold), _SIGN.sub("", written)
    readings = [(reference, answer)]
    if reference != gold and answer == written:
        readings.append((_share(gold, reference), answer))
    if answer != written and reference == gold and not _is_more_than_all(answer):
        readings.append((reference, _share(written, answer)))
    return readings


def _share(signed: str, bare: str) -> str:
    """The hundredths of a number; of another expression math-verify reads the sign itself."""
    number = read_number(bare)
    if number is None:
        return signed
    share = number.value / 100
    if 10**12 % share.denominator:  # it has no end as a decimal number
        return f"{share.numerator}/{share.denominator}"
    return f"{Decimal(share.numerator) / share.denominator:f}"


def _is_more_than_all(text: str) -> bool:
    number = read_number(text)
    return number is not None and abs(number.value) > 100
