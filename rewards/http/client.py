"""A reward that a server gives: the client of every protocol.

    {name: clip, mode: client, url: [http://127.0.0.1:18080, http://127.0.0.1:18081]}

A batch is split into requests of at most `batch_size` items, `concurrency` of them at a time.
Temporary errors are retried until the deadline of the batch (`mmrl.rewards.http.service`). A
request is halved if it is too large, has an item that the server rejects, or is answered with 500
three times, so that a bad item fails alone. A score counts only if the answer fits the request;
every other item is a failure (`mmrl.rewards.scoring.scorer`).
"""

import asyncio
import base64
import json
import re
import reprlib
import secrets
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from PIL import Image

from mmrl.config import above, at_least, check
from mmrl.config.constraints import check_settings
from mmrl.rewards.http.service import (
    BROKEN,
    JSON,
    Deadline,
    Refused,
    ServiceOptions,
    Unreachable,
    run,
)
from mmrl.rewards.parsing.images import Files, png, video_of
from mmrl.rewards.registry.interface import complete
from mmrl.rewards.scoring.returned import Failure, check_number
from mmrl.types import Sample, Video

Outcome = float | None | Exception
"""A score, None where the reward does not apply, or why there is none."""
DIVIDED = (413, 422, BROKEN)
"""Statuses after which a request is halved: it is too large, or one of its items is rejected."""


class AnswerError(ValueError):
    """An answer that violates the protocol."""


class ItemError(RuntimeError):
    """The server reports that it could not score an item; `what` are its words."""

    def __init__(self, what: object) -> None:
        super().__init__(f"the server could not score it: {str(what)[:300]}")


@dataclass(kw_only=True, eq=False)
class ClientReward(ServiceOptions, ABC):
    """Scores samples on a server; subclasses implement its protocol. Raises ConfigError: an option
    that cannot be."""

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
    batch_size: Annotated[int, at_least(1)] = 32
    """Items of one request."""

    def __post_init__(self) -> None:
        check_settings(self, self.name)
        is_name = re.fullmatch(r"[\w.-]{1,128}", self.name) is not None
        check(is_name, "name", self.name, "letters, digits, points, dashes and underscores")
        keys = (f"{self.name}.url", f"{self.name}.token_env")
        self._service = self.open_service(self.url, self.token_env, keys)

    def __call__(self, samples: list[Sample]) -> list[float | None]:
        """The raw score of each sample, or None where the reward does not apply. Raises
        PartialFailure: some samples have no score, with the reason of each."""
        deadline, call = Deadline(self.deadline_s), secrets.token_hex(8)
        files = Files(self.encode_image)
        named = [(f"{call}-{n}", sample) for n, sample in enumerate(samples)]
        size = self.batch_size
        parts = [dict(named[start : start + size]) for start in range(0, len(named), size)]
        found = run(self._service.each(lambda part: self._score(part, files, deadline), parts))
        return complete([outcome for part in found for outcome in part])

    def ready(self) -> str:
        """Why no server could score now; empty if one could, or is busy. The others are logged."""
        return self._service.why_not_ready(self.health, self.state, self.name)

    @abstractmethod
    def item(self, sample: Sample, files: Files[bytes]) -> Any:
        """Encode a sample for the protocol. Raises ValueError: why it cannot be sent."""

    @abstractmethod
    def request(self, items: Mapping[str, Any]) -> bytes:
        """Encode the body of a request for items by their ids."""

    @abstractmethod
    def scores(self, body: bytes, ids: Sequence[str]) -> Mapping[str, Outcome]:
        """Read the outcome of each item from an answer. Raises AnswerError, PickleRefused: the
        answer does not fit the request."""

    def state(self, answer: Any) -> str:
        """Why a server could not score, by what it answered at `health` (JSON that names its
        rewards, or a `Refused`); empty if it could."""
        if isinstance(answer, Refused):
            return f"it does not speak this protocol: {answer}"
        is_there = f'"{self.name}"' in json.dumps(answer)
        return "" if is_there else f"it does not serve {self.name}: {str(answer)[:300]}"

    def encode_image(self, image: Image.Image) -> bytes:
        """Encode an image."""
        return png(image)

    async def _score(
        self, samples: Mapping[str, Sample], files: Files[bytes], deadline: Deadline
    ) -> list[Outcome]:
        items: dict[str, Any] = {}
        found: dict[str, Outcome] = {}
        for key, sample in samples.items():
            try:
                items[key] = await asyncio.to_thread(self.item, sample, files)
            except (ValueError, OSError) as error:  # an image of the prompt may be gone
                found[key] = error
        found |= await self._ask(items, deadline)
        return [found[key] for key in samples]

    async def _ask(self, items: dict[str, Any], deadline: Deadline) -> dict[str, Outcome]:
        """The outcome of each item; the same error for all if the request has no answer."""
        if not items:
            return {}
        try:
            request = self.request(items)
            body = await self._service.exchange(self.path, request, self.kind, deadline)
            return {key: _checked(n) for key, n in self.scores(body, list(items)).items()}
        except (Refused, Unreachable, ValueError) as error:
            if not isinstance(error, Refused) or error.status not in DIVIDED or len(items) == 1:
                return dict.fromkeys(items, error)
        pairs, middle = list(items.items()), (len(items) + 1) // 2
        first = await self._ask(dict(pairs[:middle]), deadline)
        return first | await self._ask(dict(pairs[middle:]), deadline)


@dataclass(kw_only=True, eq=False)
class ClipReward(ClientReward, ABC):
    """A client of a server that scores videos too."""

    video: bool = False
    """Whether the reward scores whole videos, which are then sent; without, `frames` of the entry
    says which frames."""
    max_clip_mb: Annotated[float, above(0)] = 32.0
    """Mebibytes of a clip; a video that has more fails."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.video:
            self.needs = ("prompt", "video")

    @abstractmethod
    def encode_video(self, video: Video) -> bytes:
        """Encode a video as a file."""

    def clip(self, sample: Sample) -> str:
        """The video of a sample in base64. Raises ValueError: there is none, or it is too large."""
        video = video_of(sample, self.name)
        file = self.encode_video(video)
        if len(file) > self.max_clip_mb * 2**20:
            raise ValueError(
                f"the clip for prompt {sample.prompt[:80]!r} has {len(file):,} bytes, {len(video)}"
                f" frames, and {self.name}.max_clip_mb is {self.max_clip_mb:g}; raise that, or"
                " write fewer or smaller frames."
            )
        return base64.b64encode(file).decode()


def read_lists(body: bytes, keys: Sequence[str], count: int) -> list[list[dict[str, Any]]]:
    """Lists of objects in an answer, one object per item. Raises AnswerError: the answer has
    another form."""
    try:
        answer = json.loads(body)
        found = [answer[key] for key in keys]
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise AnswerError(f"the answer has no {keys[0]} ({error!r}): {body[:200]!r}") from error
    for each in found:
        if not isinstance(each, list) or not all(isinstance(one, dict) for one in each):
            raise AnswerError(f"the answer has no list of objects: {body[:200]!r}")
        if len(each) != count:
            raise AnswerError(f"the answer has {len(each)} entries for {count} items")
    return found


def _checked(score: Any) -> Outcome:
    """An outcome; an error in place of a score that is none."""
    if isinstance(score, Exception):
        return score
    found = check_number(score)
    return AnswerError(f"it {found}") if isinstance(found, Failure) else found


def plain_metadata(sample: Sample) -> dict[str, Any]:
    """The metadata of a sample, as JSON carries it. Raises ValueError: JSON cannot carry it."""
    try:
        return json.loads(json.dumps(sample.metadata, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        metadata, prompt = reprlib.repr(sample.metadata), sample.prompt[:80]
        said = f"the metadata {metadata} of {prompt!r} cannot be sent as JSON: {error}"
        raise ValueError(said) from error
