"""UniRL's reward service: `POST /score`, `GET /rewards`.

    {name: hpsv2, mode: client, protocol: unirl, url: http://127.0.0.1:8080}

An item is a history of turns of text and image: the images of the prompt, then the completion.
Images are PNG (the service reads every format of Pillow; UniRL's own client sends JPEG). Answers
are in the order of the items. Newer services echo `sample_id`, which is checked; for older ones
only the number of answers can be. A reward has one or more metrics; `metric` selects the score.
After 120 seconds, including the queue, the service answers with an error for the item; errors that
name a time-out or memory are retried. So few requests run at once, and each may take long. Images
with an alpha channel, which the service would drop, are put on white.
"""

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from PIL import Image

from mmrl.rewards.http.client import ClientReward
from mmrl.rewards.http.errors import Refused, Unreachable
from mmrl.rewards.http.protocols.answers import (
    AnswerError,
    Outcome,
    check_ids,
    copy_metadata,
    item_error,
    read_json,
)
from mmrl.rewards.http.protocols.recognition import lists_rewards
from mmrl.rewards.http.readiness import LOOK_SECONDS
from mmrl.rewards.http.service import Deadline
from mmrl.rewards.parsing.images import Files, as_rgb, png
from mmrl.types import Sample


@dataclass(kw_only=True, eq=False)
class UniRLReward(ClientReward):
    """A reward of UniRL's reward service, for images."""

    path: ClassVar[str] = "/score"
    health: ClassVar[str] = "/rewards"  # /health waits behind the requests that are queued
    needs: ClassVar[tuple[str, ...]] = ("prompt", "images")

    timeout_s: float = 300.0
    deadline_s: float = 1800.0
    concurrency: int = 2
    batch_size: int = 8
    metric: str = ""
    """Which metric of the reward is the score; empty where it has only one."""

    def encode_image(self, image: Image.Image) -> bytes:
        """A PNG file without transparent parts."""
        return png(as_rgb(image))

    def item(self, sample: Sample, files: Files[bytes]) -> dict[str, Any]:
        """A request of one reward."""
        if not isinstance(sample.completion, Image.Image):
            raise ValueError("UniRL's service scores images, and this completion is a text.")
        history = [
            {"text": sample.prompt, "image_b64": base64.b64encode(data).decode()}
            for data in files.of_sample(sample)
        ]
        metadata = copy_metadata(sample) or None
        return {"history": history, "required_rewards": [self.name], "metadata": metadata}

    def request(self, items: Mapping[str, Any]) -> bytes:
        """A batch of requests."""
        listed = [{**item, "sample_id": key} for key, item in items.items()]
        return json.dumps({"requests": listed}, allow_nan=False).encode()

    def scores(self, body: bytes, ids: Sequence[str]) -> dict[str, Outcome]:
        """The metric of each item, in the order of the items."""
        answer = read_json(body)
        results = _read_list(answer, "results", ids)
        errors = _read_list(answer, "errors", ids) if answer.get("errors") else [{} for _ in ids]
        named = answer.get("identities")
        known = named if isinstance(named, list) else []
        names = [each.get("sample_id") if isinstance(each, dict) else None for each in known]
        if any(name is not None for name in names):
            check_ids(ids, names)
            if names != list(ids):
                raise AnswerError("the answer has the items in another order")
        rows = zip(ids, results, errors, strict=True)
        return {key: self._outcome(result, error) for key, result, error in rows}

    def ready(self) -> str:
        """Why no server could score now, or why none of its metrics is the score."""
        return super().ready() or self._wrong_metric()

    def state(self, answer: Any) -> str:
        """Whether the reward is among those of the service."""
        if isinstance(answer, Exception):
            return str(answer)
        if not lists_rewards(answer, str):
            return "it does not speak this protocol"
        known = answer["rewards"]
        return "" if self.name in known else f"it serves {', '.join(known)}, not {self.name}"

    def _wrong_metric(self) -> str:
        """What is wrong with `metric`, by the answer to a small white image; empty where a busy
        service, or a reward that wants more than an image, does not tell."""
        white = Sample("a white square", Image.new("RGB", (64, 64), "white"))
        items = {"metric": self.item(white, Files(self.encode_image))}
        try:
            deadline = Deadline(LOOK_SECONDS)
            body = self._service.exchange(self.path, self.request(items), self.kind, deadline)
            outcome = self.scores(body, list(items))["metric"]
        except (Refused, Unreachable, AnswerError):
            return ""
        return str(outcome) if isinstance(outcome, AnswerError) else ""

    def _outcome(self, result: Mapping[str, Any], error: Mapping[str, Any]) -> Any:
        if self.name in error:
            return item_error(error[self.name], may_pass=True)
        metrics = result.get(self.name)
        if not isinstance(metrics, dict) or not metrics:
            return AnswerError(f"the answer has no metrics of {self.name}")
        if not self.metric and len(metrics) > 1:
            return AnswerError(
                f"{self.name} has the metrics {', '.join(metrics)[:200]}; set metric to one of them"
            )
        name = self.metric or next(iter(metrics))
        if name not in metrics:
            return AnswerError(
                f"{self.name} has the metrics {', '.join(metrics)[:200]}, not {name}"
            )
        # null is a NaN of the scorer, which is a failure and not "does not apply"
        return item_error(f"{name} is null") if metrics[name] is None else metrics[name]


def _read_list(answer: Any, key: str, ids: Sequence[str]) -> list[dict[str, Any]]:
    found = answer.get(key) if isinstance(answer, dict) else None
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise AnswerError(f"the answer has no list of {key}: {str(answer)[:200]}")
    if len(found) != len(ids):
        raise AnswerError(f"the answer has {len(found)} {key} for {len(ids)} items")
    return found
