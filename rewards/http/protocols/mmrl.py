"""The reward server of this project (`python -m mmrl.rewards.server`): `POST /v1/score`.

    {name: clip, mode: client, url: http://127.0.0.1:18080}

`name` is the key the server gives the reward. Images are PNG, videos WebP without loss, so scores
are those of the reward in this process, up to the rounding of batches of another size. Every item
has an id, which the answer must bear once.
"""

import base64
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from PIL import Image

from mmrl.rewards.http.client import (
    AnswerError,
    ClipReward,
    ItemError,
    Outcome,
    plain_metadata,
    read_lists,
)
from mmrl.rewards.parsing.images import Files
from mmrl.types import Sample, Video

logger = logging.getLogger(__name__)


@dataclass(kw_only=True, eq=False)
class MMRLReward(ClipReward):
    """A reward of a reward server."""

    path: ClassVar[str] = "/v1/score"
    health: ClassVar[str] = "/v1/health"

    versions: list[str] = field(default_factory=list, init=False, repr=False)
    """Those that have scored so far."""

    def encode_video(self, video: Video) -> bytes:
        """An animated WebP."""
        return video.file()

    def item(self, sample: Sample, files: Files[bytes]) -> dict[str, Any]:
        """An item: prompt, text, image or video, images of the prompt, metadata."""
        sample.prompt.encode()  # half a surrogate would have the whole request refused
        item: dict[str, Any] = {"prompt": sample.prompt, "metadata": plain_metadata(sample)}
        if isinstance(sample.completion, Video):
            item["video"] = {"mime": "image/webp", "data": self.clip(sample)}
        elif isinstance(sample.completion, Image.Image):
            item["images"] = [_wire(files.completion(sample.completion))]
        else:
            sample.completion.encode()
            item["completion"] = sample.completion
        if sample.images:
            item["reference_images"] = [_wire(file) for file in files.of_prompt(sample)]
        return item

    def request(self, items: Mapping[str, Any]) -> bytes:
        """Items by id; the request has the id of its first, so that a repetition is the same."""
        listed = [{"id": key, **item} for key, item in items.items()]
        content = {"id": listed[0]["id"], "reward": self.name, "items": listed}
        return json.dumps(content, allow_nan=False).encode()

    def scores(self, body: bytes, ids: Sequence[str]) -> dict[str, Outcome]:
        """Score or error of each item, all ids checked."""
        [items] = read_lists(body, ["items"], len(ids))
        answered = [str(item.get("id")) for item in items]
        if sorted(answered) != sorted(ids):
            raise AnswerError(
                f"the answer has the ids {answered[:3]}, …, and not those of {ids[0]}"
            )
        if (version := str(json.loads(body).get("version"))) not in self.versions:
            level = logging.WARNING if self.versions else logging.INFO  # two are not comparable
            self.versions.append(version)
            logger.log(level, "scores of %s come from: %s", self.name, " and ".join(self.versions))
        return {key: _outcome(item) for key, item in zip(answered, items, strict=True)}


def _wire(file: bytes) -> dict[str, str]:
    return {"mime": "image/png", "data": base64.b64encode(file).decode()}


def _outcome(item: Mapping[str, Any]) -> Any:
    if item.get("error") is not None:
        return ItemError(item["error"])
    return item.get("score", AnswerError("an item has no score"))
