"""Answers requests: from the bytes of a request to the content of its answer. Images are PNG files,
videos WebP, which are opened first, so that their size is known, and decoded later."""

import asyncio
import base64
import io
import logging
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from PIL import Image

from mmrl.rewards.server.reward_worker import RewardWorker
from mmrl.rewards.server.server_config import PIXEL_BYTES, Limits, ServerConfig
from mmrl.rewards.server.wire import (
    MAX_TEXT,
    Clip,
    Item,
    Outcome,
    Png,
    Problem,
    Refusal,
    read_request,
)
from mmrl.types import Sample, Video
from mmrl.types.video import count_frames, read_clip

logger = logging.getLogger(__name__)


class ScoringService:
    """The rewards of a server and the memory that requests share."""

    def __init__(self, config: ServerConfig) -> None:
        self.limits, self.timeout, self.held = config.limits, config.timeout_s, 0
        most = config.limits.max_waiting
        self.rewards = {entry.key: RewardWorker(entry, most) for entry in config.entries()}

    async def run(self) -> None:
        """Load the rewards one after another, because imports are not thread-safe, and serve
        them until cancelled."""
        serving = []
        for worker in self.rewards.values():
            if reward := await worker.load():
                serving.append(asyncio.create_task(worker.serve(reward)))
        await asyncio.gather(*serving)

    def health(self) -> dict[str, Any]:
        """The answer of `/v1/health`: `ok` once all rewards are loaded."""
        states = {reward.status for reward in self.rewards.values()}
        return {
            "status": next((s for s in ("failed", "loading") if s in states), "ok"),
            "rewards": [reward.health() for reward in self.rewards.values()],
            "held_bytes": self.held,
        }

    @contextmanager
    def hold(self, amount: int) -> Iterator[None]:
        """Count bytes that a request holds in the block. Raises Refusal: there are not so many, or
        not at the moment."""
        limit = self.limits.max_memory_mb * 2**20
        if amount > limit:
            reason = f"The request needs {amount:,} bytes of memory, and there are {limit:,}."
            raise Refusal(413, "too_much_memory", f"{reason} Send its items in several requests.")
        if self.held + amount > limit:
            raise Refusal(429, "busy", "The memory for requests is in use.", retry_after=1)
        self.held += amount
        try:
            yield
        finally:
            self.held -= amount

    async def answer(self, body: bytes) -> dict[str, Any]:
        """Score a request. Raises Refusal: the whole request is refused."""
        request = await asyncio.to_thread(read_request, body, self.limits.max_items)
        if request.reward not in self.rewards:
            raise Refusal(404, "unknown_reward", f"Served here: {', '.join(self.rewards)}.")
        worker = self.rewards[request.reward]
        worker.check_ready(len(request.items))  # before images are decoded
        found = await self._outcomes(worker, request.items)
        items = []
        for item, outcome in zip(request.items, found, strict=True):
            error = outcome._asdict() if isinstance(outcome, Problem) else None
            score = None if error else outcome
            items.append({"id": item.id, "score": score, "components": {}, "error": error})
            if error:
                said = "item failed: %s of request %s, %s, prompt %r: %s (%s)"
                which = item.id, request.id, request.reward, item.prompt[:80]
                logger.warning(said, *which, error["message"], error["code"])
        shown = {"id": request.id, "reward": request.reward, "version": worker.entry.version}
        return {**shown, "items": items}

    async def _outcomes(self, worker: RewardWorker, items: list[Item]) -> list[Outcome]:
        limits = self.limits
        opened = await asyncio.to_thread(lambda: [open_sample(item, limits) for item in items])
        pixels = sum(count_pixels(sample) for sample in opened if isinstance(sample, Sample))
        with self.hold(PIXEL_BYTES * pixels):
            found: list[Any] = await asyncio.to_thread(lambda: [*map(decode_sample, opened)])
            places = [n for n, sample in enumerate(found) if isinstance(sample, Sample)]
            scores = await worker.score([found[n] for n in places], self.timeout)
        for n, score in zip(places, scores, strict=True):
            found[n] = score
        return found


def open_sample(item: Item, limits: Limits) -> Sample | Problem:
    """The sample of an item with images that are not decoded, or the reason why there is none."""
    made = [*item.images, *(each for each in (item.completion, item.video) if each is not None)]
    if len(made) != 1:
        has = f"{len(made)} of them, {len(item.images)} images"
        reason = f"An item needs a completion, one image or a video, and has {has}."
        return Problem("bad_item", reason)
    longest = max(len(item.prompt), len(item.completion or ""))
    if longest > MAX_TEXT:
        reason = f"A text may have {MAX_TEXT:,} characters; this one has {longest:,}."
        return Problem("too_long", reason)
    images: list[Image.Image] = []
    shown = (*item.images, *([item.video] if item.video else ()), *item.reference_images)
    for file in shown:
        opened = open_image(file, limits)
        if isinstance(opened, Problem):
            return opened
        images.append(opened)
    completion = images.pop(0) if item.completion is None else item.completion
    return Sample(item.prompt, completion, item.metadata, images or None)


def open_image(sent: Png | Clip, limits: Limits) -> Image.Image | Problem:
    """The file, not decoded; Pillow limits the size of its texts. A problem if it claims more than
    `limits` allow, or is no whole file of its kind."""
    formats, most = ("WEBP" if isinstance(sent, Clip) else "PNG",), limits.max_pixels
    try:
        file = io.BytesIO(base64.b64decode(sent.data, validate=True))
        Image.open(file, formats=formats).verify()  # all checksums of a PNG
        image = Image.open(file, formats=formats)
        frames = _frames(image)
    except Exception as error:
        return _damage(error)
    if math.prod(image.size) > most:
        reason = f"{image.width} x {image.height} pixels; an image may have {most}."
        return Problem("too_many_pixels", reason)
    if frames > limits.max_frames:
        return Problem("too_many_frames", f"{frames} frames; limits.max_frames={limits.max_frames}")
    return image


def count_pixels(sample: Sample) -> int:
    """Pixels of the images of a sample."""
    return sum(_frames(image) * math.prod(image.size) for image in _images(sample))


def decode_sample(sample: Sample | Problem) -> Sample | Problem:
    """The sample with its images decoded, or the reason why there is none."""
    if isinstance(sample, Problem):
        return sample
    decoded: list[Any] = []
    for image in _images(sample):
        whole = decode(image)
        if isinstance(whole, Problem):
            return whole
        decoded.append(whole)
    completion = sample.completion if isinstance(sample.completion, str) else decoded.pop()
    return replace(sample, completion=completion, images=decoded or None)


def decode(image: Image.Image) -> Image.Image | Video | Problem:
    """The image, in the mode it was saved in, without texts and colour profiles, or the video; a
    problem where pixels are missing."""
    try:
        if image.format == "WEBP":
            return read_clip(image)
        image.load()
    except Exception as error:  # decoders raise various errors on broken files
        return _damage(error)
    found = image.copy()
    found.info = {key: value for key, value in image.info.items() if key == "transparency"}
    found.format = "PNG"
    return found


def _images(sample: Sample) -> list[Image.Image]:
    """Those of the prompt, then that of the completion, if it is one, or an opened clip."""
    own = [sample.completion] if isinstance(sample.completion, Image.Image) else []
    return [*(sample.images or ()), *own]


def _frames(image: Image.Image) -> int:
    """Those of a clip; 1 of a PNG, of which one is read."""
    return count_frames(image) if image.format == "WEBP" else 1


def _damage(error: Exception) -> Problem:
    reason = f"The image or clip cannot be read: {type(error).__name__} ({error})."
    is_bomb = isinstance(error, Image.DecompressionBombError)
    return Problem("too_many_pixels" if is_bomb else "decode_failed", reason[:300])
