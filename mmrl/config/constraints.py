"""What a setting may be, declared in its type and checked when its section is built.

    @dataclass(kw_only=True)
    class LoopConfig(Settings):
        where: ClassVar[str] = "sampler"

        name: Annotated[str, one_of(RULES)] = "emerge"
        steps: Annotated[int, at_least(1)] = 12
        block_size: Annotated[int | None, at_least(1)] = None
        cache: Literal["none", "prefix"] = "none"

`--help` shows the same. Only what several settings decide together is code, in a `__post_init__`
that calls that of `Settings` first.
"""

import dataclasses
import math
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

from mmrl.config.checks import check, check_choice


class Constraint(NamedTuple):
    """What is allowed beyond a type: in words, as a test, and, where it is a choice, its names."""

    allowed: str
    holds: Callable[[Any], bool]
    choices: Mapping[str, Any] | Sequence[str] = ()


def at_least(
    low: float, up_to: float = math.inf, *, below: float = math.inf, or_word: str = ""
) -> Constraint:
    """A number from `low` on: to `up_to`, or to below `below`; or else the word `or_word`."""
    end = f" to {up_to}" if up_to < math.inf else f" to below {below}"
    allowed = f"at least {low}" if min(up_to, below) == math.inf else f"from {low}{end}"
    allowed = f"{or_word} or {allowed}" if or_word else allowed

    def holds(value: Any) -> bool:
        return (
            value == or_word if isinstance(value, str) else low <= value <= up_to and value < below
        )

    return Constraint(allowed, holds)


def above(low: float, up_to: float = math.inf) -> Constraint:
    """A number above `low`, up to `up_to`."""
    end = f", up to {up_to}" if up_to < math.inf else ""
    return Constraint(f"above {low}{end}", lambda value: low < value <= up_to)


def filled(allowed: str) -> Constraint:
    """A text, list or mapping that is not empty; `allowed` says what it should be."""
    return Constraint(allowed, bool)


def one_of(choices: Mapping[str, Any] | Sequence[str]) -> Constraint:
    """One of several names, or of the keys of a registry."""
    return Constraint(" | ".join(sorted(choices)), choices.__contains__, choices)


class Settings:
    """A section of settings, whose values are checked when it is built."""

    where: ClassVar[str] = ""
    """Dotted key of the section, for messages."""

    @classmethod
    def setting_types(cls) -> dict[str, Any]:
        """The types of the settings that a section may have."""
        return field_types(cls)

    def __post_init__(self) -> None:
        check_settings(self, self.where)


def check_settings(config: Any, where: str = "") -> None:
    """Check the values of a dataclass against the types and constraints of its fields; `where` is
    its dotted key. Raises ConfigError: a value that is not allowed, an infinite number or a NaN."""
    prefix = f"{where}." if where else ""
    for name, hint in field_types(type(config)).items():
        check_value(hint, getattr(config, name), prefix + name)


@cache
def field_types(cls: Any) -> dict[str, Any]:
    """The types of the fields that a dataclass is built from, with what they allow. A class that
    only gives a field another default keeps the constraint of the class it extends."""
    hints = typing.get_type_hints(cls, include_extras=True)
    for base in filter(dataclasses.is_dataclass, cls.__mro__[1:]):
        for name, hint in field_types(base).items():
            if constraint_of(hint) and hints[name] == typing.get_args(hint)[0]:
                hints[name] = hint
    return {field.name: hints[field.name] for field in dataclasses.fields(cls) if field.init}


def section_types(cls: Any) -> dict[str, Any] | None:
    """The types of the settings of a dataclass; None for what is none."""
    if not dataclasses.is_dataclass(cls):
        return None
    return cls.setting_types() if issubclass(cls, Settings) else field_types(cls)  # type: ignore


def constraint_of(hint: Any) -> Constraint | None:
    """The constraint that a type declares."""
    return hint.__metadata__[0] if typing.get_origin(hint) is Annotated else None


def options_of(hint: Any) -> tuple[Any, ...]:
    """The types of a union, or the type alone."""
    union = typing.get_origin(hint) in (typing.Union, types.UnionType)
    return typing.get_args(hint) if union else (hint,)


def bare_type(hint: Any) -> Any:
    """A type without its constraint and its `| None`."""
    hint = typing.get_args(hint)[0] if constraint_of(hint) else hint
    rest = [one for one in options_of(hint) if one is not types.NoneType]
    return rest[0] if len(rest) == 1 else hint


def check_value(hint: Any, value: Any, key: str) -> None:
    """Check a value, or what a plain container holds, against a type; a dataclass is that of a
    mapping with its settings. Raises what `check_settings` raises."""
    constraint, inner = constraint_of(hint), bare_type(hint)
    arguments = typing.get_args(inner) or (Any,)
    if value is None:
        return
    if isinstance(value, float):
        check(math.isfinite(value), key, value, "a finite number")
    if constraint and constraint.choices:
        check_choice(key, value, constraint.choices)
    elif constraint:
        optional = types.NoneType in options_of(typing.get_args(hint)[0])
        allowed = f"null or {constraint.allowed}" if optional else constraint.allowed
        check(constraint.holds(value), key, value, allowed)
    if typing.get_origin(inner) is Literal:
        check_choice(key, value, arguments)
    elif isinstance(value, Mapping):
        known = section_types(inner)
        for name, item in value.items():
            one = arguments[-1] if known is None else known[name]
            check_value(one, item, f"{key}.{name}" if key else name)
    elif isinstance(value, list):
        for n, item in enumerate(value):
            check_value(arguments[0], item, f"{key}[{n}]")
