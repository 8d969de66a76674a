"""UniRL's reward service: `POST /score`, `GET /rewards`.

    {name: hpsv2, mode: client, protocol: unirl, url: http://127.0.0.1:8080}
    {name: videoalign, mode: client, protocol: unirl, url: …, video: true, metric: VQ}

An item is a history of turns of text and image: the images of the prompt, then the completion.
Images are PNG; those with an alpha channel, which the service would drop, are put on white. Videos
are MP4, without loss, at their own rate (UniRL's client sends lossy ones, at 8 a second). Answers
are in the order of the items, and their number is checked. A reward has one or more metrics;
`metric` selects the score. After 120 seconds, including the queue, the service answers with an
error for the item, so few requests run at once.
"""

import base64
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, Any, ClassVar

from PIL import Image

from mmrl.config import above, at_least, import_extra
from mmrl.rewards.http.client import (
    AnswerError,
    ClipReward,
    ItemError,
    Outcome,
    plain_metadata,
    read_lists,
)
from mmrl.rewards.parsing.images import Files, as_rgb, image_of, png
from mmrl.types import Sample, Video


@dataclass(kw_only=True, eq=False)
class UniRLReward(ClipReward):
    """A reward of UniRL's reward service, for images or videos."""

    path: ClassVar[str] = "/score"
    health: ClassVar[str] = "/rewards"  # /health waits behind the requests that are queued
    needs = ("prompt", "images")

    timeout_s: Annotated[float, above(0)] = 300.0
    deadline_s: Annotated[float, above(0)] = 1800.0
    concurrency: Annotated[int, above(0)] = 2
    batch_size: Annotated[int, at_least(1)] = 8
    metric: str = ""
    """Which metric of the reward is the score; empty where it has only one."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.video:
            import_extra("av", "judge")  # refused before anything is sampled

    def encode_image(self, image: Image.Image) -> bytes:
        """A PNG file without transparent parts."""
        return png(as_rgb(image))

    def encode_video(self, video: Video) -> bytes:
        """An MP4 file, in H.264 of red, green and blue without loss."""
        av, buffer = import_extra("av", "judge"), io.BytesIO()
        with av.open(buffer, "w", format="mp4") as file:
            rate = Fraction(video.fps).limit_denominator(1001)
            options = {"crf": "0", "preset": "ultrafast"}
            stream = file.add_stream("libx264rgb", rate=rate, options=options)
            stream.height, stream.width = video.frames.shape[1:3]
            stream.pix_fmt = "rgb24"
            for frame in video.frames:
                file.mux(stream.encode(av.VideoFrame.from_ndarray(frame, format="rgb24")))
            file.mux(stream.encode())
        return buffer.getvalue()

    def item(self, sample: Sample, files: Files[bytes]) -> dict[str, Any]:
        """A request of one reward."""
        if not self.video:
            image_of(sample, self.name)
        shown = [{"image_b64": base64.b64encode(data).decode()} for data in files.of_sample(sample)]
        turns = [*shown, {"video_b64": self.clip(sample)}] if self.video else shown
        history = [{"text": sample.prompt, **turn} for turn in turns]
        metadata = plain_metadata(sample) or None
        return {"history": history, "required_rewards": [self.name], "metadata": metadata}

    def request(self, items: Mapping[str, Any]) -> bytes:
        """A batch of requests."""
        return json.dumps({"requests": list(items.values())}, allow_nan=False).encode()

    def scores(self, body: bytes, ids: Sequence[str]) -> dict[str, Outcome]:
        """The metric of each item, in the order of the items."""
        results, errors = read_lists(body, ["results", "errors"], len(ids))
        rows = zip(ids, results, errors, strict=True)
        return {key: self._outcome(result, error) for key, result, error in rows}

    def _outcome(self, result: Mapping[str, Any], error: Mapping[str, Any]) -> Any:
        if self.name in error:
            return ItemError(error[self.name])
        found = result.get(self.name)
        metrics: dict[str, Any] = found if isinstance(found, dict) else {}
        known = list(metrics)
        name = self.metric or (known[0] if len(known) == 1 else "")
        if name not in known:
            return AnswerError(
                f"{self.name} has the metrics {known}, not {name!r}; set metric to one of them"
            )
        # null is a NaN of the scorer, which is a failure and not "does not apply"
        return ItemError(f"{name} is null") if metrics[name] is None else metrics[name]
