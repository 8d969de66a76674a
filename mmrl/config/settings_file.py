"""The JSON files of a checkpoint: config.json, adapter_config.json, an index of shards."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mmrl.config.checks import ConfigError


def read_settings_file(path: Path) -> dict[str, Any]:
    """The settings of a JSON file.

    Raises:
        ConfigError: it cannot be read, is no JSON object, or a number is not finite; the message
            names the file and the key.
    """
    try:
        settings = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"'{path}' is not JSON ({error}). Copy or download it again.") from error
    if not isinstance(settings, dict):
        raise ConfigError(f"'{path}' holds no settings but {type(settings).__name__}.")
    for key, value in _numbers("", settings):
        if not -sys.float_info.max <= value <= sys.float_info.max:
            shown = value if isinstance(value, float) else "an integer beyond float64"
            raise ConfigError(
                f"'{path}': {key} is {shown}; it must be a finite number. Write what the checkpoint"
                " was trained with."
            )
    return settings


def _numbers(key: str, value: Any) -> Iterator[tuple[str, float]]:
    """The numbers within a value, each with its dotted key."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for name, each in items:
        where = f"{key}.{name}".removeprefix(".")
        if isinstance(each, dict | list):
            yield from _numbers(where, each)
        elif isinstance(each, int | float):
            yield where, each
