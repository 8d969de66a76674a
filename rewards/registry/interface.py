"""What a reward is, and what else it may be."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, TypeVar, runtime_checkable

from mmrl.types import Cutting, Sample

if TYPE_CHECKING:
    from torch import Tensor

T = TypeVar("T")


class Reward(Protocol):
    """Scores a batch of samples of any length, in order."""

    def __call__(self, samples: list[Sample]) -> Sequence[float | Sequence[float] | None]:
        """One raw score per sample, or one per chunk of it; None if the reward does not apply.
        Raises ValueError: a completion of another kind than the reward reads, or malformed
        metadata. Raises PartialFailure: the same of some samples; the others have their scores."""
        ...


class PartialFailure(RuntimeError):
    """Some samples of a batch could not be scored; `results` is what the call would have returned,
    with an exception for each of those samples."""

    def __init__(self, results: Sequence[float | Sequence[float] | None | Exception]) -> None:
        self.results = list(results)
        errors = [result for result in results if isinstance(result, Exception)]
        super().__init__(
            f"{len(errors)} of {len(results)} samples could not be scored; first: {errors[0]}"
        )


def outcomes(call: Callable[[list[Sample]], Sequence[Any]], samples: list[Sample]) -> list[Any]:
    """What a reward returns for samples, with an exception for each that it could not score."""
    try:
        return list(call(samples))
    except PartialFailure as failure:
        return failure.results


def complete(results: Sequence[T | Exception]) -> list[T]:
    """Results none of which is an exception. Raises PartialFailure: some are."""
    if any(isinstance(result, Exception) for result in results):
        raise PartialFailure(results)  # type: ignore[arg-type]
    return [result for result in results if not isinstance(result, Exception)]


@runtime_checkable
class CutsCompletions(Protocol):
    """A reward that may judge chunks of completions; `cutting` is None if it judges the whole."""

    cutting: Cutting | None


@runtime_checkable
class InStep(Protocol):
    """A reward that the loop has to call itself.

    Threads call the others while the next groups are sampled, in each process independently. A
    reward that asks the policy, or in which processes take part together, says `in_step = True`.
    It is called in the main thread when all tasks have been sampled, once per step and task with
    all samples of the process (none if an evaluation has none for it), and in the same order on
    every process.
    """

    in_step: bool


class Item(NamedTuple):
    """A question that is a part of a sample's score: its category, such as `attribute - color`, its
    own answer, and what it counts for in the score."""

    category: str
    answer: float
    score: float


@runtime_checkable
class Itemised(Protocol):
    """A reward whose score of a sample is the mean over items, which benchmarks report by category.

    Where `record` is a list, the items of every sample that is scored are appended to it.
    """

    record: list[tuple[Sample, list[Item]]] | None


@runtime_checkable
class Served(Protocol):
    """A reward that a server outside this process computes."""

    def ready(self) -> str:
        """Why it could not score now, within seconds; empty if it could."""
        ...


@runtime_checkable
class Differentiable(Protocol):
    """A reward of images whose score has a gradient (strategy: last_steps)."""

    def score_pixels(self, pixels: Sequence[Tensor], samples: list[Sample]) -> Tensor:
        """[n] float32, the raw scores of images [3, H, W] float32 in [0, 1], which take the place
        of the completions of the samples, with the gradient of the pixels. They may differ from
        those of the images as files by what 8 bits and an image library round."""
        ...


@runtime_checkable
class ChecksMetadata(Protocol):
    """A reward that finds prompts which it cannot score before anything is sampled."""

    def check(self, metadata: Mapping[str, Any]) -> None:
        """Raise a ValueError if the reward cannot read the metadata of a prompt."""
        ...


@runtime_checkable
class Described(Protocol):
    """A reward that says what it reads."""

    needs: ClassVar[tuple[str, ...]]
    """What a sample has to bring: `prompt`, `images` (an image as its completion), `video`,
    `completion` (a text), `metadata`. One that names several kinds of completions scores each of
    them, and one that names none images and texts."""


def in_step(reward: Reward) -> bool:
    """Whether the loop has to call a reward itself."""
    return isinstance(reward, InStep) and reward.in_step
