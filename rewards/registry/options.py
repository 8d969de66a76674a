"""Checks the options of a reward against the typed keyword arguments of its constructor."""

import dataclasses
import inspect
from collections.abc import Mapping
from typing import Any, get_type_hints

from mmrl.config import merge


def check_options(cls: type, options: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Options of `cls` with defaults filled in and values converted to the annotated types.

    Args:
        cls: a class whose constructor takes typed keyword arguments.
        options: values by argument name.
        where: dotted key of the section, for messages.

    Raises:
        ValueError: an argument that does not exist, has the wrong type, or is required and absent.
    """
    # a dataclass may have fields of another module, whose names mean something there
    hints = get_type_hints(cls if dataclasses.is_dataclass(cls) else cls.__init__)
    parameters = list(inspect.signature(cls).parameters.values())
    fields = [(p.name, hints[p.name], _field(p.default)) for p in parameters]
    schema = dataclasses.make_dataclass(f"{cls.__name__}Options", fields, kw_only=True)
    return dataclasses.asdict(merge(schema, dict(options), where=where))


def _field(default: Any) -> Any:
    if default is inspect.Parameter.empty:
        return dataclasses.field()
    if isinstance(default, list | dict):
        return dataclasses.field(default_factory=lambda: type(default)(default))
    return dataclasses.field(default=default)
