"""The equations reward: are the steps of a calculation right?

`9*6=54` is right, `54*5=380` is wrong, whatever they lead to. With `per_line` it is a process
reward without a judge.
"""

import re
from dataclasses import dataclass
from typing import ClassVar

from mmrl.config import Settings
from mmrl.rewards.parsing.arithmetic import evaluate, normalise
from mmrl.rewards.parsing.metadata import read_sample
from mmrl.types import Cutting, Sample

_EQUATION = re.compile(
    r"(?<![\w.,=)*/+^%-])(-?[\d(][\d+\-*/() ]{0,299})=[ ]*(-?\d+)"
    r"(?!\d|[.,]\d|\(|[ ]*=|[ ]*[-+*/^%][ ]*[\d(])"  # nothing of it is further right
)
_LEFT = re.compile(r"[\w.,)][ ]*[-+*/][ ]*$|[=^%][ ]*$")
"""What ends with a part of the equation that follows."""
NEAR = 9
"""Characters before an equation that are searched for such a part: an operator between spaces."""
_OPERATION = re.compile(r"[\d)]\s*[-+*/]")


@dataclass(kw_only=True, eq=False)
class EquationsReward(Settings):
    """Score the equations that a text writes; needs no metadata.

    An equation is an expression of whole numbers with an operation, an equals sign and a whole
    number. An expression alone and a chain (`2+3=5+1`) are none.
    """

    where: ClassVar[str] = "equations"
    scale: ClassVar[str] = "-1 to 1"
    needs: ClassVar[tuple[str, ...]] = ("completion",)

    per_line: bool = False
    """Judge each line of a completion on its own: a process reward, which `trace_rl_value` credits
    where the line ends."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.cutting = Cutting(1, "lines") if self.per_line else None

    def __call__(self, samples: list[Sample]) -> list[float | list[float]]:
        """The mean over equations, 1.0 for a right one and -1.0 for a wrong one, or 0.0 without
        any; with `per_line` one for each line."""
        return [self._score(sample) for sample in samples]

    def _score(self, sample: Sample) -> float | list[float]:
        content = read_sample(sample, "equations")
        assert content is not None, "a reward that needs no metadata applies to every sample"
        if self.cutting is None or sample.chunks is None:
            return judge(content[0])
        return [judge(chunk.text) for chunk in sample.chunks]


def judge(text: str) -> float:
    """The mean over the equations of a text, 1.0 or -1.0 each; 0.0 without any."""
    text = normalise(text)
    found = [
        match
        for match in _EQUATION.finditer(text)
        if _OPERATION.search(match[1])
        and not _LEFT.search(text, max(0, match.start() - NEAR), match.start())
    ]
    verdicts = [1.0 if _holds(match[1], match[2]) else -1.0 for match in found]
    return sum(verdicts) / len(verdicts) if verdicts else 0.0


def _holds(expression: str, value: str) -> bool:
    while expression.count("(") > expression.count(")") and expression.startswith("("):
        expression = expression[1:]  # of a bracket around the equation
    try:
        return evaluate(expression)[0] == int(value)
    except (ValueError, ZeroDivisionError):
        return False
