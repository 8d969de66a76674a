"""The reward server of this project (`python -m mmrl.rewards.server`): `POST /v1/score`.

    {name: clip, mode: client, url: http://127.0.0.1:18080}

`name` is the key the server gives the reward. Images are PNG, so scores are those of the reward
in this process, up to the rounding of batches of another size. Every item has an id, which the
answer must bear once.
"""

import base64
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from PIL import Image

from mmrl.rewards.http.client import ClientReward
from mmrl.rewards.http.protocols.answers import (
    AnswerError,
    Outcome,
    check_ids,
    copy_metadata,
    item_error,
    read_json,
)
from mmrl.rewards.http.protocols.recognition import lists_rewards
from mmrl.rewards.parsing.images import Files
from mmrl.types import Sample

logger = logging.getLogger(__name__)


@dataclass(kw_only=True, eq=False)
class MMRLReward(ClientReward):
    """A reward of a reward server."""

    path: ClassVar[str] = "/v1/score"
    health: ClassVar[str] = "/v1/health"

    prompt_images: bool = True
    """Send the images of prompts along; only judges use them."""
    versions: set[str] = field(default_factory=set, init=False, repr=False)
    """Those that have scored so far."""

    def item(self, sample: Sample, files: Files[bytes]) -> dict[str, Any]:
        """An item: prompt, completion or image, images of the prompt, metadata."""
        sample.prompt.encode()  # half a surrogate would have the whole request refused
        item: dict[str, Any] = {"prompt": sample.prompt, "metadata": copy_metadata(sample)}
        if isinstance(sample.completion, Image.Image):
            item["images"] = [_wire(files.completion(sample.completion))]
        else:
            sample.completion.encode()
            item["completion"] = sample.completion
        if self.prompt_images and sample.images:
            item["reference_images"] = [_wire(file) for file in files.of_prompt(sample)]
        return item

    def request(self, items: Mapping[str, Any]) -> bytes:
        """Items by id; the request has the id of its first, so that a repetition is the same."""
        listed = [{"id": key, **item} for key, item in items.items()]
        content = {"id": _request_id(list(items)), "reward": self.name, "items": listed}
        return json.dumps(content, allow_nan=False).encode()

    def scores(self, body: bytes, ids: Sequence[str]) -> dict[str, Outcome]:
        """Score or error of each item, all ids checked."""
        answer = read_json(body)
        items = answer.get("items") if isinstance(answer, dict) else None
        if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
            raise AnswerError(f"the answer is no list of items: {str(answer)[:200]}")
        if (answer.get("id"), answer.get("reward")) != (_request_id(ids), self.name):
            raise AnswerError(f"the answer is to another request, {str(answer.get('id'))[:80]!r}")
        check_ids(ids, [item.get("id") for item in items])
        self._note(str(answer.get("version")))
        return {item["id"]: _outcome(item) for item in items}

    def state(self, answer: Any) -> str:
        """Whether the reward is served and loaded."""
        if isinstance(answer, Exception):
            return str(answer)
        if not lists_rewards(answer, dict):
            return "it does not speak this protocol"
        known = {str(each.get("name")): each for each in answer["rewards"]}
        if self.name not in known:
            return f"it serves {', '.join(known)}, and not {self.name}"
        status, error = known[self.name].get("status"), known[self.name].get("error")
        return "" if status == "ok" else f"{self.name} is {status} ({error or 'no error'})"

    def _note(self, version: str) -> None:
        """Log every version that gives scores; two in one run are not comparable."""
        if version in self.versions:
            return
        self.versions.add(version)
        logger.info("reward %s is served as version %s", self.name, version)
        if len(self.versions) > 1:
            said = " and ".join(sorted(self.versions))
            logger.warning("scores of %s come from different versions: %s", self.name, said)


def _wire(file: bytes) -> dict[str, str]:
    return {"mime": "image/png", "data": base64.b64encode(file).decode()}


def _request_id(ids: Sequence[str]) -> str:
    return f"{ids[0]}+{len(ids)}"


def _outcome(item: Mapping[str, Any]) -> Any:
    error = item.get("error")
    if error is None:
        return item.get("score", AnswerError("an item has no score"))
    found = error if isinstance(error, dict) else {"message": error}
    return item_error(f"{found.get('code')}: {found.get('message')}")
