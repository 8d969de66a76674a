"""The settings of a class: key, type, default and meaning, read from its definition.

The meaning is the docstring below a field of a dataclass, or the `Args:` of a class whose
constructor takes the options. The metadata of a field whose value is the options of components
names their dict or dataclass: `{"holds": "mmrl.rewards:REWARDS"}`.
"""

import ast
import dataclasses
import importlib
import inspect
import re
import sys
import typing
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

from mmrl.config.constraints import bare_type, constraint_of, field_types, options_of
from mmrl.config.options import choices, readers

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
    """List the settings of a dataclass, or of a class whose constructor takes them."""
    if not dataclasses.is_dataclass(cls):
        return _arguments(cls)
    hints, meanings = field_types(cls), field_docstrings(cls)  # type: ignore[arg-type]
    return [_field(f, hints[f.name], meanings, cls) for f in dataclasses.fields(cls) if f.init]


def options_class(entry: Any) -> Any:
    """The class with the options of a component, from its entry in a dict of components."""
    cls = _import(entry) if isinstance(entry, str) else entry
    return getattr(cls, "Config", cls)


def component_summary(entry: Any) -> str:
    """The first paragraph of a component's docstring on one line."""
    cls = entry if isinstance(entry, type) else options_class(entry)
    paragraph = (inspect.getdoc(cls) or "").split("\n\n")[0]
    return " ".join(paragraph.split())


def field_docstrings(cls: type) -> dict[str, str]:
    """The docstring below each field of a dataclass, with those of the classes it extends."""
    found: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        if dataclasses.is_dataclass(base):
            body = _class_body(base)
            for field, text in zip(body, body[1:], strict=False):
                if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                    doc = getattr(getattr(text, "value", None), "value", None)
                    if isinstance(text, ast.Expr) and isinstance(doc, str):
                        found[field.target.id] = " ".join(doc.split())
    if not found:
        found = argument_docstrings(cls)
    return found


def argument_docstrings(cls: Any) -> dict[str, str]:
    """The lines under `Args:` (or `Attributes:`) of a class, by argument."""
    text = inspect.getdoc(cls) or ""
    block = re.search(r"^(?:Args|Attributes):\n((?:[ ]{4}.*\n?|\n)+)", text, re.MULTILINE)
    entries = re.split(r"^ {4}(?=\w)", block[1], flags=re.MULTILINE) if block else []
    pairs = (entry.partition(":")[::2] for entry in entries if ":" in entry)
    return {name.strip(): " ".join(meaning.split()) for name, meaning in pairs}


def as_yaml(value: Any) -> str:
    """Write a default as YAML."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, str):
        return value or '""'
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{key}: {as_yaml(item)}' for key, item in value.items())}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(as_yaml, value))}]"
    return f"{value}"


def _field(field: Any, hint: Any, meanings: Mapping[str, str], cls: Any) -> Setting:
    held, many = _held(hint)
    if "holds" in field.metadata:
        held = _import(field.metadata["holds"])
    is_section = dataclasses.is_dataclass(bare_type(hint)) and field.default is not None
    default = "" if is_section else _default(field)
    read_by = {column: readers(field.name, each) for column, each in choices(cls).items()}
    notes = [f"Read only with {column}: {', '.join(n)}." for column, n in read_by.items() if n]
    meaning = " ".join([meanings.get(field.name, ""), *notes])
    return Setting(field.name, _type(hint), default, meaning, held, many)


def _default(field: Any) -> str:
    if field.default_factory is not dataclasses.MISSING:
        return as_yaml(field.default_factory())
    return "required" if field.default is dataclasses.MISSING else as_yaml(field.default)


def _arguments(cls: Any) -> list[Setting]:
    """The options of a class that takes them as typed keyword arguments."""
    hints, meanings = typing.get_type_hints(cls.__init__), argument_docstrings(cls)
    missing = inspect.Parameter.empty
    return [
        Setting(
            p.name,
            _type(hints.get(p.name, Any)),
            "required" if p.default is missing else as_yaml(p.default),
            meanings.get(p.name, ""),
        )
        for p in inspect.signature(cls).parameters.values()
    ]


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


def _import(path: str) -> Any:
    module, _, name = path.partition(":")
    return getattr(importlib.import_module(module), name)


def _class_body(cls: type) -> list[ast.stmt]:
    """The statements of a class, found by its qualified name in the source of its module."""
    body = _source(str(sys.modules[cls.__module__].__file__)).body
    for name in cls.__qualname__.split("."):
        found = [node for node in body if isinstance(node, ast.ClassDef) and node.name == name]
        if not found:
            return []
        body = found[0].body
    return body


@cache
def _source(path: str) -> ast.Module:
    return ast.parse(Path(path).read_text(encoding="utf-8"))


def walk(cls: Any, key: str = "", seen: frozenset[int] = frozenset()) -> Iterator[Setting]:
    """Yield all settings below a class with their full keys; each class is entered once."""
    rows = settings(cls)
    entered = seen | {id(cls)}
    for row in rows:
        place = f"{key}.{row.key}" if key else row.key
        yield row._replace(key=place)
        if row.holds is None or id(row.holds) in entered:
            continue
        entered |= {id(row.holds)}
        held = row.holds if isinstance(row.holds, Mapping) else {"": row.holds}
        for name, entry in held.items():
            below = f"{place}.{name}" if name else place
            yield from walk(options_class(entry), below, entered)
