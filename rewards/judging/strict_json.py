"""JSON from others, read strictly."""

import json
from typing import Any


def strict_json(text: str | bytes) -> Any:
    """JSON without NaN, infinity and repeated keys, which Python's reader lets through.

    Raises:
        ValueError, RecursionError: it is something else, or nested too deeply.
    """
    return json.loads(text, parse_constant=_refuse, object_pairs_hook=_once)


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is no number of JSON")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key occurs twice")
    return found
