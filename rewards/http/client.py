"""A reward that a server gives: the client of every protocol.

    {name: clip, mode: client, url: [http://127.0.0.1:18080, http://127.0.0.1:18081]}

A batch is split into requests of at most `batch_size` items, which are distributed over the healthy
addresses, `concurrency` at a time. Temporary errors are retried until the deadline of the batch
(`mmrl.rewards.http.service`); a server that is absent, loading or busy is waited for. A request is
halved if it is too large, has an item that the server rejects, or is answered with 500 three times,
so that a bad item fails alone. Items that lacked time or memory are sent again in smaller requests.
A score counts only if the answer fits the request; every other item is a failure
(`mmrl.rewards.scoring.scorer`).
"""

import logging
import re
import secrets
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from PIL import Image

from mmrl.config import check
from mmrl.rewards import PartialFailure
from mmrl.rewards.http import stop
from mmrl.rewards.http.errors import Refused, Unreachable
from mmrl.rewards.http.protocols.answers import AnswerError, Outcome, PassingError, check_finite
from mmrl.rewards.http.protocols.recognition import recognise
from mmrl.rewards.http.readiness import why_not_ready
from mmrl.rewards.http.service import BROKEN, JSON, Deadline
from mmrl.rewards.http.service_options import ServiceOptions
from mmrl.rewards.parsing.images import Files, png
from mmrl.types import Sample

logger = logging.getLogger(__name__)

DIVIDED = (413, 422, BROKEN)
"""Statuses after which a request is halved: it is too large, or one of its items is rejected."""
BROKEN_RETRIES = 2
"""Further tries of a request that is answered with 500, before it is halved."""


@dataclass(kw_only=True, eq=False)
class ClientReward(ServiceOptions, ABC):
    """Scores samples on a server; subclasses implement its protocol.

    Raises:
        ConfigError: an option that cannot be.
    """

    path: ClassVar[str]
    """Path of requests, appended to the address."""
    kind: ClassVar[str] = JSON
    """Content type of requests."""
    health: ClassVar[str] = "/"
    """Path of the health check."""

    name: str
    """Name of the reward at the server."""
    url: list[str]
    """Addresses of the server; several take turns."""
    token_env: str = ""
    """Environment variable that holds the bearer token; empty for none."""
    batch_size: int = 32
    """Items of one request."""

    def __post_init__(self) -> None:
        for key in ("deadline_s", "timeout_s", "concurrency", "batch_size"):
            check(getattr(self, key) > 0, f"{self.name}.{key}", getattr(self, key), "above 0")
        check(self.retries >= 0, f"{self.name}.retries", self.retries, "0 or more")
        is_name = re.fullmatch(r"[\w.-]{1,128}", self.name) is not None
        check(is_name, "name", self.name, "letters, digits, points, dashes and underscores")
        keys, tries = (f"{self.name}.url", f"{self.name}.token_env"), BROKEN_RETRIES
        self._service = self.open_service(self.url, self.token_env, keys, broken_retries=tries)

    def __call__(self, samples: list[Sample]) -> list[float | None]:
        """Score a batch.

        Returns:
            The raw score of each sample, or None where the reward does not apply.

        Raises:
            PartialFailure: some samples have no score, with the reason of each.
        """
        deadline, call = Deadline(self.deadline_s), secrets.token_hex(8)
        files = Files(self.encode_image)

        def part(start: int) -> list[Outcome]:
            some = samples[start : start + self.batch_size]
            return self._outcomes(some, f"{call}-{start}", files, deadline)

        starts = range(0, len(samples), self.batch_size)
        results = [each for some in self._service.each(part, starts) for each in some]
        if any(isinstance(result, Exception) for result in results):
            raise PartialFailure(results)
        return [result for result in results if not isinstance(result, Exception)]

    def ready(self) -> str:
        """Why no server could score now; empty if one could, or is busy. The others are logged."""
        return why_not_ready(self._service, self.health, self._problem, self.name)

    def _problem(self, url: str, answer: Any) -> str:
        """Why a server that answers could not score: it is another one, or lacks the reward."""
        problem = self.state(answer)
        other = recognise(url) if problem else ""
        return f"{problem}; {other}" if other else problem

    @abstractmethod
    def item(self, sample: Sample, files: Files[bytes]) -> Any:
        """Encode a sample for the protocol.

        Raises:
            ValueError: it cannot be sent, with the reason.
        """

    @abstractmethod
    def request(self, items: Mapping[str, Any]) -> bytes:
        """Encode the body of a request for items by their ids."""

    @abstractmethod
    def scores(self, body: bytes, ids: Sequence[str]) -> Mapping[str, Outcome]:
        """Read the outcome of each item from an answer.

        Raises:
            AnswerError, PickleRefused: the answer does not fit the request.
        """

    @abstractmethod
    def state(self, answer: Any) -> str:
        """Why a server could not score, by what it answered at `health`; empty if it could.

        Args:
            answer: JSON, or a `Refused`.
        """

    def encode_image(self, image: Image.Image) -> bytes:
        """Encode an image."""
        return png(image)

    def _outcomes(
        self, samples: Sequence[Sample], call: str, files: Files[bytes], deadline: Deadline
    ) -> list[Outcome]:
        found: dict[str, Outcome] = {}
        items: dict[str, Any] = {}
        for n, sample in enumerate(samples):
            try:
                items[f"{call}-{n}"] = self.item(sample, files)
            except (ValueError, OSError) as error:  # an image of the prompt may be gone
                found[f"{call}-{n}"] = error
        found |= self._ask(items, deadline) if items else {}
        return [found[f"{call}-{n}"] for n in range(len(samples))]

    def _ask(
        self, items: dict[str, Any], deadline: Deadline, tries: int = 0
    ) -> Mapping[str, Outcome]:
        """The outcome of each item; the same error for all if the request has no answer."""
        ids = list(items)
        try:
            body = self._service.exchange(self.path, self.request(items), self.kind, deadline)
            given = self.scores(body, ids)
        except Refused as error:
            if error.status in DIVIDED and len(ids) > 1:
                return self._ask_in_halves(items, deadline, tries)
            return dict.fromkeys(ids, error)
        except (Unreachable, ValueError) as error:
            return dict.fromkeys(ids, error)
        found = {key: _check_score(given.get(key, AnswerError("no answer"))) for key in ids}
        again = {key: items[key] for key in ids if isinstance(found[key], PassingError)}
        pause = self._service.pause(tries)
        if again and tries < self.retries and pause < deadline.left:
            logger.info("%s, %s; trying again", self.name, found[next(iter(again))])
            stop.sleep(pause)
            return {**found, **self._ask_in_halves(again, deadline, tries + 1)}
        return found

    def _ask_in_halves(
        self, items: dict[str, Any], deadline: Deadline, tries: int
    ) -> Mapping[str, Outcome]:
        ids, middle = list(items), (len(items) + 1) // 2
        parts = [ids[:middle], ids[middle:]]
        found = [
            self._ask({key: items[key] for key in part}, deadline, tries) for part in parts if part
        ]
        return {key: outcome for part in found for key, outcome in part.items()}


def _check_score(outcome: Outcome) -> Outcome:
    return outcome if outcome is None or isinstance(outcome, Exception) else check_finite(outcome)
