"""The JSON files of a checkpoint: config.json, adapter_config.json, an index of shards."""

import json
import sys
from pathlib import Path
from typing import Any

from mmrl.config.checks import ConfigError

UNBOUNDED = "lambda_min_clipped"
"""What diffusers writes as -Infinity for a solver without that bound."""


def read_settings_file(path: Path) -> dict[str, Any]:
    """The settings of a JSON file. Raises ConfigError: it cannot be read, is no JSON object, or a
    number is not finite."""
    try:
        settings = json.loads(path.read_text(encoding="utf-8"), object_pairs_hook=_finite)
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"'{path}' is not JSON ({error}). Copy or download it again.") from error
    if not isinstance(settings, dict):
        raise ConfigError(f"'{path}' holds no settings but {type(settings).__name__}.")
    return settings


def _finite(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    most = sys.float_info.max
    for key, value in pairs:
        for each in value if isinstance(value, list) else [value]:
            number = isinstance(each, int | float) and key != UNBOUNDED
            if number and not -most <= each <= most:
                shown = each if isinstance(each, float) else "an integer beyond float64"
                raise ValueError(f"{key} is {shown}; it must be a finite number")
    return dict(pairs)
