"""The command line of the generators here: `key=value` words over defaults."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Collection, Mapping, Sequence


def read(
    arguments: Sequence[str], defaults: Mapping[str, str], texts: Collection[str] = ("out",)
) -> dict[str, str]:
    """Read `key=value` arguments over defaults.

    Args:
        arguments: of the command line.
        defaults: every key there is, among them `out`.
        texts: keys whose value need not be a whole number.

    Raises:
        ValueError: If an argument has no `=`, names an unknown key, is not a whole number where
            one is needed, or if `out` is missing.
    """
    settings = dict(defaults)
    for argument in arguments:
        key, separator, value = argument.partition("=")
        if not separator or key not in defaults:
            allowed = ", ".join(f"{name}=" for name in defaults)
            raise ValueError(f"Unknown argument {argument!r}; allowed are {allowed}.")
        if key not in texts and not value.isdigit():
            raise ValueError(f"{key}={value!r} is not a whole number of 0 or more.")
        settings[key] = value
    if not settings["out"]:
        raise ValueError("out= is missing: name the folder to write into.")
    return settings


def run(main: Callable[[list[str]], None]) -> None:
    """Run a generator on the command line; what is wrong with that becomes one line."""
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    try:
        main(sys.argv[1:])
    except ValueError as error:
        sys.exit(f"error: {error}")
