"""Brightness as a reward: what any image model learns within a minute, to see that a run works."""

from collections.abc import Sequence

import numpy as np

from mmrl.types import Sample


def brightness(samples: Sequence[Sample]) -> list[float | None]:
    """The mean of the grey values of each image, from 0 (black) to 1; None for a text."""
    return [
        None if isinstance(image, str) else float(np.asarray(image.convert("L")).mean() / 255)
        for image in (sample.completion for sample in samples)
    ]
