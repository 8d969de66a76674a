"""The contract of engines.

    engine.pause()                    requests at work are finished, further ones wait
    engine.begin_update()             from here on it refuses to answer
    engine.send(weights)              whole layers, under the names of the checkpoint
    engine.finish_update(version)     it has these weights, and says so
    engine.resume()
    engine.generate(requests)

An update that is interrupted leaves an engine without a version, which refuses to answer until a
further one has sent all weights.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from torch import Tensor

    from mmrl.generation.causal.sampler_config import AutoregressiveConfig


class EngineError(RuntimeError):
    """An engine does not answer, or not as it must."""


class Request(NamedTuple):
    """One text to write: token ids of the prompt, the seed of its draws, the most tokens it may
    have, ids that end it, ids that it never contains, and how tokens are drawn."""

    prompt: list[int]
    seed: int
    max_tokens: int
    stop_ids: tuple[int, ...]
    banned: tuple[int, ...]
    config: AutoregressiveConfig


class Answer(NamedTuple):
    """Its token ids, with the end if there is one, their log-probs as they were drawn, and the
    version of the weights that wrote it."""

    tokens: list[int]
    logprobs: list[float]
    version: int


class Engine(ABC):
    """What writes texts; `version` counts the updates of its weights, None where they are not
    known to be those of the policy, so that the next update must be of all."""

    version: int | None = None

    def generate(self, requests: Sequence[Request]) -> list[Answer]:
        """Write texts, in order. Raises EngineError: no answer, or the weights are not known."""
        if self.version is None:
            raise EngineError(f"{self} has no complete weights, and is not asked")
        return self._generate(requests, self.version)

    def begin_update(self) -> None:
        """Begin to replace weights."""
        self.version = None
        self._begin_update()

    def finish_update(self, version: int) -> None:
        """Use the weights that were sent, without any key or value of those before. Raises
        EngineError: the engine has another version."""
        self._finish_update(version)
        self.version = version

    @abstractmethod
    def pause(self) -> None:
        """Finish the requests at work, and let others wait."""

    @abstractmethod
    def resume(self) -> None:
        """Go on after `pause`."""

    @abstractmethod
    def close(self) -> None:
        """Free what it holds in this process."""

    @abstractmethod
    def health(self) -> str:
        """Why it cannot answer now; empty if it can."""

    @abstractmethod
    def describe(self) -> Mapping[str, Any]:
        """The `config.json` of the model that it has."""

    @abstractmethod
    def send(self, weights: Iterable[tuple[str, Tensor]]) -> None:
        """Replace weights, by their names in the checkpoint; the iterable may gather each when it
        is asked for it."""

    @abstractmethod
    def _generate(self, requests: Sequence[Request], version: int) -> list[Answer]: ...

    @abstractmethod
    def _begin_update(self) -> None: ...

    @abstractmethod
    def _finish_update(self, version: int) -> None: ...


def check_answer(
    tokens: list[int], logprobs: list[float], request: Request, version: int
) -> Answer:
    """An answer, with the log-probs of a sampler that draws. Raises ValueError, TypeError: what is
    no text of the request."""
    if not 0 < len(tokens) <= request.max_tokens or len(logprobs) != len(tokens):
        raise ValueError(f"{len(tokens)} tokens and {len(logprobs)} log-probs")
    if not all(isinstance(token, int) and token >= 0 for token in tokens):
        raise ValueError("a token that is no id")
    if not all(math.isfinite(value) for value in logprobs):
        raise ValueError("a log-prob that is not finite")
    greedy = request.config.temperature == 0
    return Answer(tokens, [0.0] * len(tokens) if greedy else logprobs, version)
