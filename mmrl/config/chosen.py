"""Sections whose settings depend on what they choose: a rule, a strategy, a bound.

    @dataclass(kw_only=True)
    class SamplerConfig(Chosen):
        CHOICES = {"name": SAMPLERS}
        name: Annotated[str, one_of(SAMPLERS)] = "emerge"

Every entry of such a registry has a `Config` dataclass with the settings that it reads, declared in
its own file. `SamplerConfig(name="static", …)` builds the section of what is chosen, and so does a
section of a YAML; a setting that only others read is left out there, with a warning.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, fields, make_dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar

from typing_extensions import Self

from mmrl.config.checks import check_choice
from mmrl.config.constraints import Settings, field_types

logger = logging.getLogger(__name__)


@dataclass(kw_only=True)
class NoOptions:
    """The `Config` of a component without settings."""


class Chosen(Settings):
    """A section whose class follows some of its settings: those in `CHOICES`, with the registries
    that they choose from."""

    CHOICES: ClassVar[Mapping[str, Mapping[str, Any]]] = {}

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """A setting of what is chosen."""

    def __new__(cls, *_: Any, **options: Any) -> Self:
        """A section of what `options` choose, for the class that chooses; see `pathlib.Path`."""
        return super().__new__(cls.choose(options) if "CHOICES" in vars(cls) else cls)

    @classmethod
    def choose(cls, content: Mapping[str, Any], where: str = "") -> Any:
        """The class of a section with this content; `where` is its dotted key. Raises ConfigError:
        an unknown choice."""
        if "CHOICES" not in vars(cls):
            return cls
        defaults = {field.name: field.default for field in fields(cls)}  # type: ignore[arg-type]
        found = []
        for key, registry in cls.CHOICES.items():
            value = content.get(key, defaults[key])
            check_choice(f"{where or cls.where}.{key}", value, registry)
            found.append(registry[value].Config)
        return _combine(cls, *found)

    @classmethod
    @cache
    def setting_types(cls) -> dict[str, Any]:
        """The types of the settings of every choice."""
        found = dict(field_types(cls))
        for _, _, each in cls.variants():
            found = field_types(each) | found
        return found

    @classmethod
    def variants(cls) -> Iterator[tuple[str, str, Any]]:
        """Yield every choice: its key, its name, and the class with its settings."""
        for key, registry in cls.CHOICES.items():
            for name, entry in registry.items():
                yield key, name, entry.Config


@cache
def _combine(cls: type, *options: type) -> type:
    """One class with the settings of all, the same each time."""
    own = [each for each in dict.fromkeys(options) if each is not NoOptions]
    bases = [a for a in own if not any(a is not b and issubclass(b, a) for b in [*own, cls])]
    made = make_dataclass(cls.__name__, [], bases=(*bases, cls), kw_only=True)
    made.__module__, made.__doc__ = cls.__module__, cls.__doc__
    return made


@cache
def every_field(cls: Any) -> dict[str, Field[Any]]:
    """The fields of a section; where it chooses, of all that may be chosen."""
    found = {field.name: field for field in fields(cls)}
    for _, _, each in cls.variants() if issubclass(cls, Chosen) else ():
        found = found | {f.name: f for f in fields(each) if f.name not in found}
    return found


def readers(cls: Any, key: str) -> dict[str, list[str]]:
    """What reads a setting that not every choice has: choices by the setting that chooses."""
    found: dict[str, list[str]] = {}
    if issubclass(cls, Chosen) and key not in field_types(cls):
        for column, name, each in cls.variants():
            if any(field.name == key for field in fields(each)):
                found.setdefault(column, []).append(name)
    return {
        column: names for column, names in found.items() if len(names) < len(cls.CHOICES[column])
    }


def leave_out_unread(cls: Any, chosen: type, layers: Sequence[dict[str, Any]], where: str) -> None:
    """Remove from the layers of a section what only other choices read; warn of a value that is not
    its default."""
    known, read = every_field(cls), {field.name for field in fields(chosen)}  # type: ignore[arg-type]
    for layer in layers:
        for key in sorted((known.keys() - read) & layer.keys()):
            value, default = layer.pop(key), known[key].default
            if default is not MISSING and value == default:
                continue
            for column, names in readers(cls, key).items():
                warn_once(
                    f"{where or cls.where}.{key} is {value} and is not read; with {column}:"
                    f" {', '.join(names)} it would be"
                )


def keep_read(cls: Any, usual: Mapping[Any, Any], stated: Mapping[str, Any]) -> dict[str, Any]:
    """Of the usual settings of a section, those that it reads with the stated ones on top."""
    read = {field.name for field in fields(cls.choose({**usual, **stated}))}
    return {key: value for key, value in usual.items() if key in read}


@cache
def warn_once(message: str) -> None:
    """Log a warning the first time."""
    logger.warning("%s", message)
