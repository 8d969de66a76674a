"""A row of a data set as a mapping, and what every adapter does with one."""

from typing import Any

Row = dict[str, Any]


def omit(row: Row, *keys: str) -> Row:
    """The row without some columns."""
    return {key: value for key, value in row.items() if key not in keys}


def drop_empty(**values: Any) -> Row:
    """The values that are not empty."""
    return {key: value for key, value in values.items() if value}
