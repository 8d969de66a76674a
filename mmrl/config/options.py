"""One flat section of settings whose keys are declared by several components, each in its file.

Every entry of such a registry has a `Config` dataclass with the settings that it reads. The section
extends all of them, so its keys, types, defaults, docstrings and constraints come from there:

    @dataclass(kw_only=True)
    class SamplerConfig(*option_classes(RULES), LoopConfig): ...
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from mmrl.config.constraints import constraint_of, field_types


@dataclass(kw_only=True)
class NoOptions:
    """The `Config` of a component without settings."""


def option_classes(*registries: Mapping[str, Any]) -> tuple[type, ...]:
    """The `Config` classes of all entries, each once, without those that another one extends.

    Raises:
        TypeError: two classes give a setting of one name different types or defaults.
    """
    every = {entry.Config for registry in registries for entry in registry.values()}
    declared: dict[str, Any] = {}
    for cls in every:
        for field in fields(cls):
            meaning = field.type, field.default
            if declared.setdefault(field.name, meaning) != meaning:
                raise TypeError(f"{cls.__qualname__}.{field.name} is declared twice, differently")
    leaves = (c for c in every if not any(issubclass(o, c) and o is not c for o in every))
    return tuple(sorted(leaves, key=lambda cls: (cls.__module__, cls.__qualname__)))


def choices(cls: type) -> dict[str, Any]:
    """The names that settings choose from, or the registries of them, by key."""
    declared = {key: constraint_of(hint) for key, hint in field_types(cls).items()}
    return {key: each.choices for key, each in declared.items() if each and each.choices}


def readers(key: str, entries: Any) -> list[str]:
    """The entries of a registry that read a setting; none where all do, or where it is none."""
    registry = entries if isinstance(entries, Mapping) else {}
    has = {name: getattr(entry, "Config", NoOptions) for name, entry in registry.items()}
    found = [name for name, cls in has.items() if any(field.name == key for field in fields(cls))]
    return found if len(found) < len(has) else []


def unread_options(config: Any) -> list[str]:
    """Settings with another value than their default that what is chosen does not read."""
    return [
        f"{field.name} is {getattr(config, field.name)}, and {column}: {getattr(config, column)}"
        f" does not read it ({', '.join(names)} would)"
        for column, entries in choices(type(config)).items()
        for field in fields(config)
        if getattr(config, field.name) != field.default
        if (names := readers(field.name, entries)) and getattr(config, column) not in names
    ]
