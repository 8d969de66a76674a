"""Videos in requests: a base64 clip of each, lossless and of a limited size."""

import base64
import io
from abc import ABC, abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated

from mmrl.config import above, import_extra
from mmrl.rewards.http.client import ClientReward
from mmrl.rewards.parsing.images import video_of
from mmrl.types import Sample, Video


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


def mp4(video: Video) -> bytes:
    """An MP4 file, in H.264 of red, green and blue without loss, for servers that read no WebP.
    Raises ConfigError: the package av is missing."""
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
