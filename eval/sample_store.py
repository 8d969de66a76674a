"""Finished batches of a benchmark on disk, from which an interrupted one continues.

    samples/settings.json     what decides the samples
    samples/<name>.json       a batch: texts, lengths, cost
    samples/<name>-<n>.png    its images, where it has any; videos as .webp, without loss

The JSON of a batch is written last, under another name, and renamed, so a batch is complete or
missing.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from PIL import Image

from mmrl.config import ConfigError
from mmrl.config.settings import flatten
from mmrl.rollouts.held_out import Batch
from mmrl.types import Video
from mmrl.types.video import read_clip

_SETTINGS = "settings.json"


class SampleStore:
    """The batches of a folder, by name; processes may share it, each writing its own batches."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def check(self, settings: Mapping[str, Any]) -> None:
        """Refuse to continue from batches that were sampled with other settings. Raises
        ConfigError: names what differs."""
        path = self.folder / _SETTINGS
        if not path.is_file() or not any(p.name != _SETTINGS for p in self.folder.glob("*.json")):
            return
        before = dict(flatten(_read(path)))
        now = dict(flatten(json.loads(_json(settings))))
        keys = [key for key in {**before, **now} if before.get(key) != now.get(key)]
        if keys:
            shown = "; ".join(f"{k}: {before.get(k)!r} there, {now.get(k)!r} now" for k in keys)
            raise ConfigError(
                f"output_dir is '{self.folder.parent}', which holds samples of another evaluation"
                f" ({shown}). Choose another output_dir, or remove it, or go back to its settings."
            )

    def begin(self, settings: Mapping[str, Any]) -> None:
        """Write what decides the samples, before the first batch."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._put(_SETTINGS, settings)

    def has(self, name: str) -> bool:
        """Whether a batch is finished."""
        return (self.folder / f"{name}.json").is_file()

    def write(self, name: str, batch: Batch) -> None:
        """Store a finished batch."""
        for n, image in enumerate(batch.completions):
            if isinstance(image, Image.Image):
                image.save(self.folder / f"{name}-{n}.png")
            if isinstance(image, Video):
                (self.folder / f"{name}-{n}.webp").write_bytes(image.file())
        texts = [text if isinstance(text, str) else None for text in batch.completions]
        self._put(f"{name}.json", asdict(replace(batch, completions=[])) | {"completions": texts})

    def read(self, name: str) -> Batch:
        """Read a finished batch. Raises ConfigError: it cannot be read."""
        values = _read(self.folder / f"{name}.json")
        completions = [
            self._image(f"{name}-{n}") if text is None else text
            for n, text in enumerate(values["completions"])
        ]
        return Batch(**{**values, "completions": completions})

    def _image(self, name: str) -> Image.Image | Video:
        clip = self.folder / f"{name}.webp"
        path = clip if clip.is_file() else self.folder / f"{name}.png"
        try:
            with Image.open(path) as image:
                if path == clip:
                    return read_clip(image)
                image.load()
                return image
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"'{path}' is damaged ({error}); remove the .json of its batch."
            ) from error

    def _put(self, name: str, values: Mapping[str, Any]) -> None:
        # several processes may write the same file
        aside = self.folder / f"{name}.{os.getpid()}.partial"
        aside.write_text(_json(values), encoding="utf-8")
        os.replace(aside, self.folder / name)


def _json(values: Mapping[str, Any]) -> str:
    return json.dumps(values, indent=1, ensure_ascii=False, default=str) + "\n"


def _read(path: Path) -> dict[str, Any]:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ConfigError(f"'{path}' is damaged ({error}); remove it and run again.") from error
