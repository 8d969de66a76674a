"""`metrics.jsonl` of a run: one JSON object per line, with its `step`."""

import json
import math
from pathlib import Path
from typing import Any, TypeGuard


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """Read the lines in order of steps, without those that a kill has truncated."""
    if not path.is_file():
        return []
    lines = [_read_line(text) for text in path.read_text(encoding="utf-8").splitlines()]
    return sorted((line for line in lines if line), key=lambda line: line["step"])


def is_number(value: Any) -> TypeGuard[int | float]:
    """Whether a value is a finite number."""
    return isinstance(value, int | float) and math.isfinite(value)


def _read_line(text: str) -> dict[str, Any]:
    """The object of a line; empty where it is not readable or has no step."""
    try:
        line = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return line if isinstance(line, dict) and is_number(line.get("step")) else {}
