"""The cycle reward: does the policy see in its image what the prompt asked for?

    score = questions about the image that the policy answers as the prompt has it / questions

The questions are built from the prompt's metadata (`mmrl.rewards.judging.scene_questions`). The
policy answers them as prompts of the task image_to_text from the encoded pixels, without seeing the
prompt of the image. TIFA (arXiv:2303.11897) asks a separate model; here the policy reads its own
images, so its reading errors are rewarded. Keep a reward that is independent of the policy among
`eval_rewards`.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from PIL import Image

from mmrl.config import Settings, at_least, check, filled, one_of
from mmrl.rewards.answer import AnswerReward
from mmrl.rewards.judging.policy_query import Answer, PolicyQuery
from mmrl.rewards.judging.scene_questions import KINDS, Question, build_questions
from mmrl.rewards.parsing.images import image_of
from mmrl.rewards.registry.interface import complete
from mmrl.types import Prompt, Sample

TASK = "image_to_text"
GREEDY = {"name": "static", "temperature": 0.0, "eos": "leave"}
"""Defaults of the sampler: greedy decoding, one position per step."""


@dataclass(kw_only=True, eq=False)
class CycleReward(Settings):
    """Score images by the share of questions about them that the policy answers right."""

    where: ClassVar[str] = "cycle"
    in_step: ClassVar[bool] = True
    needs: ClassVar[tuple[str, ...]] = ("images", "metadata")

    ask: Annotated[
        list[Annotated[str, one_of(KINDS)]] | None, filled(f"some of {', '.join(KINDS)}")
    ] = None
    """Kinds of questions, of `count`, `color`, `relation` and `existence`; null asks all."""
    policy: str = ""
    """Which of `models` answers; empty asks the policy that wrote the images."""
    template: str = "{question}"
    """Words around a {question}."""
    max_completion_length: Annotated[int, at_least(1)] = 8
    """Response positions of an answer."""
    sampler: dict[str, Any] | None = None
    """Settings of the sampler of answers that differ from `static` at temperature 0 with one
    position per step."""
    batch_size: Annotated[int, at_least(1)] = 64
    """Questions answered at once; changes speed and memory only."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check(
            "{question}" in self.template, "cycle.template", self.template, "words with {question}"
        )
        self.kinds = tuple(self.ask or KINDS)
        self._answer: Answer | None = None
        self._judge = AnswerReward()

    def query(self) -> PolicyQuery:
        """How the policy is asked."""
        sampler = {**GREEDY, "steps": self.max_completion_length, **(self.sampler or {})}
        length, size = self.max_completion_length, self.batch_size
        return PolicyQuery(TASK, length, sampler, size, self.policy)

    def bind(self, answer: Answer) -> None:
        """Take what asks the policy."""
        self._answer = answer

    def check(self, metadata: Mapping[str, Any]) -> None:
        """Raise a ValueError where metadata with `include` is not of GenEval's schema."""
        build_questions(metadata, self.kinds)

    def __call__(self, samples: list[Sample]) -> list[float | None]:
        """Scores in [0, 1]; None where the metadata has nothing to ask about. The policy is asked
        once for the whole batch. Raises RuntimeError: no policy was given."""
        if self._answer is None:
            raise RuntimeError(
                "the cycle reward asks the policy and was given none: bind(answer) comes first"
            )
        asked = [self._asked(sample) for sample in samples]
        # the same question about the same image is asked once
        prompts = {p.id: p for each in asked if isinstance(each, list) for p, _ in each}
        said = dict(zip(prompts, self._answer(list(prompts.values())), strict=True))
        return complete(
            [each if isinstance(each, ValueError) else self._share(each, said) for each in asked]
        )

    def _asked(self, sample: Sample) -> list[tuple[Prompt, Question]] | ValueError:
        """The questions about a sample as prompts that show its image, or what is wrong with it."""
        try:
            found = build_questions(sample.metadata, self.kinds)
            shown = [image_of(sample, "cycle")] if found else []
        except ValueError as error:  # of this sample alone: the policy is asked about the others
            return error
        name = "".join(map(_digest, shown))
        texts = [self.template.replace("{question}", question.text) for question in found]
        return [
            (Prompt(f"{name} {text}", TASK, text, images=shown), question)
            for text, question in zip(texts, found, strict=True)
        ]

    def _share(self, asked: list[tuple[Prompt, Question]], said: Mapping[str, str]) -> float | None:
        """How many of the answers about an image are right."""
        answers = [Sample(text, said[prompt.id], facts) for prompt, (text, facts) in asked]
        scores = [score for score in self._judge(answers) if score is not None]
        return sum(scores) / len(scores) if scores else None


def _digest(image: Image.Image) -> str:
    """Hash an image by its pixels, which is equal in all processes."""
    return hashlib.blake2b(image.tobytes(), digest_size=8, person=b"%dx%d" % image.size).hexdigest()
