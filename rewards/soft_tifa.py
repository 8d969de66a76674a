"""Soft-TIFA: what a prompt asks for, by the probabilities with which a judge finds it in the image
(GenEval 2, arXiv 2512.16853).

    {name: soft_tifa, model: Qwen/Qwen3-VL-8B-Instruct, urls: ["http://127.0.0.1:8000/v1"]}

The questions are those of `dsg`, of data.format: geneval2. The answer to each is the probability of
yes as the judge's first word, and the score their mean: arithmetic, or geometric where all must
hold. Deviation: where GenEval 2 takes the probability of a number or a colour, the question asks
whether that is the answer; questions do not depend on each other.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, geometric_mean
from typing import Any, ClassVar, Literal

from mmrl.rewards.dsg import DSGReward, Question
from mmrl.rewards.registry.interface import Item
from mmrl.types import Sample

LEAST = 1e-9
"""What a probability is held above in a geometric mean."""


@dataclass(kw_only=True, eq=False)
class SoftTIFAReward(DSGReward):
    """Scores images by how probable yes is to the questions of their prompts; the options are those
    of the judge."""

    usual: ClassVar[str] = "yes_probability"

    mean: Literal["arithmetic", "geometric"] = "arithmetic"
    """Of the probabilities."""

    def _score(
        self, sample: Sample, questions: Sequence[Question], answers: Sequence[Any]
    ) -> float:
        if self.record is not None:
            pairs = zip(questions, answers, strict=True)
            self.record.append((sample, [Item(q.category, a, a) for q, a in pairs]))
        if self.mean == "geometric":
            return geometric_mean([max(answer, LEAST) for answer in answers])
        return fmean(answers)
