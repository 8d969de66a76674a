"""The settings of a class: key, type, default and meaning, read from its definition.

The meaning is the docstring below a field. The metadata of a field whose value is the options of
components names their dict or dataclass: `{"holds": "mmrl.rewards:REWARDS"}`.
"""

import ast
import dataclasses
import inspect
import math
import re
import sys
import typing
from collections.abc import Iterator, Mapping
from dataclasses import MISSING
from functools import cache
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, Literal, NamedTuple

import yaml

from mmrl.config.chosen import every_field, readers
from mmrl.config.constraints import bare_type, constraint_of, options_of, section_types

NONE = type(None)


class Setting(NamedTuple):
    """One setting. `holds` is the dataclass of a section, or a dict of components by name; `many`
    says that the value is a mapping from names to such sections."""

    key: str
    type: str
    default: str
    meaning: str
    holds: Any = None
    many: bool = False


def settings(cls: Any) -> list[Setting]:
    """List the settings of a dataclass; where it chooses, of all that may be chosen."""
    hints, found = section_types(cls) or {}, every_field(cls).values()
    return [_field(field, hints[field.name], cls) for field in found if field.init]


def held_settings(row: Setting) -> list[Setting]:
    """The settings of a section, or its components as sections."""
    if isinstance(row.holds, Mapping):
        return [
            Setting(name, "section", "", component_summary(entry), options_class(entry))
            for name, entry in row.holds.items()
        ]
    return [] if row.holds is None else settings(row.holds)


def find_setting(cls: Any, key: str) -> Setting | None:
    """Find the setting of a dotted key; names of a user's sections may be left out.

    `tasks.sampler`, `tasks.shapes.sampler`, `tasks.shapes.rewards[0].clip`
    """
    rows, found = settings(cls), None
    for name in re.sub(r"\[\d+\]", "", key).split("."):
        row = next((row for row in rows if row.key == name), None)
        if row is None and found is not None and found.many:
            continue
        if row is None:
            return None
        place = f"{found.key}.{name}" if found else name
        found, rows = row._replace(key=place), held_settings(row)
    return found


def walk(cls: Any, components: bool = True) -> Iterator[Setting]:
    """Yield all settings below a class, with those of `components`; each class is entered once."""
    waiting, entered = [("", cls)], {id(cls)}
    while waiting:
        above, section = waiting.pop(0)
        for row in settings(section):
            place = f"{above}.{row.key}" if above else row.key
            yield row._replace(key=place)
            if row.holds is None or id(row.holds) in entered:
                continue
            entered.add(id(row.holds))
            if not isinstance(row.holds, Mapping):
                waiting.append((f"{place}.<name>" if row.many else place, row.holds))
            elif components:
                named = row.holds.items()
                waiting += [(f"{place}.{name}", options_class(entry)) for name, entry in named]


def options_class(entry: Any) -> Any:
    """The class with the options of a component, from its entry in a dict of components."""
    cls = resolve_name(entry) if isinstance(entry, str) else entry
    return getattr(cls, "Config", cls)


def component_summary(entry: Any) -> str:
    """The first paragraph of a component's docstring on one line."""
    cls = entry if isinstance(entry, type) else options_class(entry)
    paragraph = (inspect.getdoc(cls) or "").split("\n\n")[0]
    return " ".join(paragraph.split())


@cache
def field_docstrings(cls: type) -> dict[str, str]:
    """The docstring below each field of a dataclass, with those of the classes it extends."""
    found: dict[str, str] = {}
    for base in (each for each in reversed(cls.__mro__) if dataclasses.is_dataclass(each)):
        body = _source(getattr(sys.modules[base.__module__], "__file__", None)).body
        for name in base.__qualname__.split("."):
            named = [n.body for n in body if isinstance(n, ast.ClassDef) and n.name == name]
            body = named[0] if named else []
        for field, text in zip(body, body[1:], strict=False):
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                doc = getattr(getattr(text, "value", None), "value", None)
                if isinstance(text, ast.Expr) and isinstance(doc, str):
                    found[field.target.id] = " ".join(doc.split())
    return found


def _meaning(cls: Any, name: str) -> str:
    """The docstring of a setting, of the class or of the first choice that has it."""
    classes = [cls, *(each for _, _, each in getattr(cls, "variants", list)())]
    return next((found[name] for found in map(field_docstrings, classes) if name in found), "")


@cache
def _source(path: str | None) -> ast.Module:
    return ast.parse(Path(path).read_text(encoding="utf-8") if path else "")


def as_yaml(value: Any) -> str:
    """Write a default as YAML on one line."""
    text = yaml.safe_dump(value, default_flow_style=True, width=math.inf, sort_keys=False)
    return text.removesuffix("...\n").strip()


def _field(field: Any, hint: Any, cls: Any) -> Setting:
    held, many = _held(hint)
    if "holds" in field.metadata:
        held = resolve_name(field.metadata["holds"])
    is_section = dataclasses.is_dataclass(bare_type(hint)) and field.default is not None
    value = field.default if field.default_factory is MISSING else field.default_factory()
    default = "" if is_section else "required" if value is MISSING else as_yaml(value)
    read_by = readers(cls, field.name).items()
    notes = [f"Read only with {column}: {', '.join(names)}." for column, names in read_by]
    meaning = " ".join([_meaning(cls, field.name), *notes])
    return Setting(field.name, _type(hint), default, meaning, held, many)


def _held(hint: Any) -> tuple[Any, bool]:
    """The dataclass of a value, or of the values of a mapping, and whether it is a mapping."""
    bare = bare_type(hint)
    if typing.get_origin(bare) is dict and dataclasses.is_dataclass(typing.get_args(bare)[1]):
        return typing.get_args(bare)[1], True
    return (bare if dataclasses.is_dataclass(bare) else None), False


def _type(hint: Any) -> str:
    """A type in the words of YAML."""
    if hint is NONE or hint is Any:
        return "null" if hint is NONE else "anything"
    if constraint := constraint_of(hint):
        plain = _type(typing.get_args(hint)[0])
        return constraint.allowed if constraint.choices else f"{plain} ({constraint.allowed})"
    if len(options_of(hint)) > 1:
        return " | ".join(map(_type, options_of(hint)))
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Literal:
        return " | ".join(as_yaml(value) for value in arguments)
    if dataclasses.is_dataclass(hint):
        return "section"
    name = getattr(origin or hint, "__name__", str(hint))
    return f"{name}[{', '.join(map(_type, arguments))}]" if arguments else name
