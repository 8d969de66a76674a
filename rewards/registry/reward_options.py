"""Options of a reward, checked against the signature of its class or function before it is built.

A reward of this package takes typed keyword arguments. A reward of the user may be any function or
class of a file or module, or a callable from Python:

    def short(samples, limit: int = 100):
        return [float(len(sample.completion) <= limit) for sample in samples]

    rewards: [{name: path/to/file.py:short, limit: 80, weight: 0.5}]

A function gets the samples and returns a list with a number, or None where it does not apply, for
each of them. Further keys of its entry are its keyword arguments, or those of the constructor of a
class. One with an argument `pixels` is differentiable, see `mmrl.rewards.registry.of_pixels`.
"""

import copy
import dataclasses
import inspect
from collections.abc import Callable, Mapping
from typing import Any, get_type_hints

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from mmrl.config import ConfigError, merge
from mmrl.config.by_name import write_name
from mmrl.config.checks import suggest
from mmrl.config.constraints import field_types
from mmrl.rewards.registry.of_pixels import takes_pixels

_ADAPTER = (
    "It is called with a list of samples alone. A function (prompts, completions, **kwargs) is"
    " called by one that is: def mine(samples): return theirs(prompts=[s.prompt for s in samples],"
    " completions=[s.completion for s in samples])."
)


def check_options(cls: type, options: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Convert options to the types that the constructor of a class has for them, and fill in its
    defaults; messages name the section that they are in (`where`). Raises ValueError: an argument
    that does not exist, has the wrong type, or is required and absent."""
    hints = _read_hints(cls)
    made = {
        each.name: each.default_factory()
        for each in (dataclasses.fields(cls) if dataclasses.is_dataclass(cls) else ())
        if each.default_factory is not dataclasses.MISSING
    }
    defaults = {p.name: made.get(p.name, p.default) for p in _parameters(cls) or ()}
    fields = [(name, hints[name], _field(default)) for name, default in defaults.items()]
    schema = dataclasses.make_dataclass(f"{cls.__name__}Options", fields, kw_only=True)
    return dataclasses.asdict(merge(schema, dict(options), where=where))


def _field(default: Any) -> Any:
    if default is inspect.Parameter.empty:
        return dataclasses.field()
    return dataclasses.field(default_factory=lambda: copy.copy(default))


def check_own_options(found: Any, options: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Convert the options of the user's reward, any callable or a class of callable objects, to the
    types that its signature has for them; see `check_options`. Raises ConfigError: it cannot be
    called with samples, or not with these options."""
    is_class = isinstance(found, type)
    if is_class and not any("__call__" in vars(cls) for cls in found.__mro__):
        raise ConfigError(
            f"{where}: the class {found.__name__} has no __call__(self, samples), so it is no"
            " reward."
        )
    if not callable(found):
        raise ConfigError(f"{where} is {found!r}; it must be a function or a class.")
    parameters, name = _parameters(found), write_name(found)
    if parameters is None:
        return dict(options)
    if not is_class:
        called = found if inspect.isroutine(found) else type(found).__call__
        if inspect.iscoroutinefunction(called) or inspect.isgeneratorfunction(called):
            raise ConfigError(
                f"{where}: {name} is async or yields; it must return a list of scores."
            )
        if not parameters or parameters[0].name in ("prompts", "completions"):
            raise ConfigError(f"{where}: {name} takes no list of samples. {_ADAPTER}")
    try:
        given = {"pixels": [], **options} if takes_pixels(found) else options
        inspect.signature(found).bind(*([] if is_class else [[]]), **given)
    except TypeError as error:
        known = [each.name for each in parameters[not is_class :]]
        near = "".join(suggest(key, known) for key in options if key not in known)
        advice = "" if is_class else f" {_ADAPTER}"
        raise ConfigError(
            f"{where}: {name}({', '.join(map(str, parameters))}) cannot be called with samples and"
            f" {dict(options)}: {error}.{near}{advice}"
        ) from None
    hints = _read_hints(found)
    typed = {key: hints[key] for key in options if key in hints and _is_checkable(hints[key])}
    schema = dataclasses.make_dataclass("Options", typed.items(), kw_only=True)
    values = merge(schema, {key: options[key] for key in typed}, where=where)
    return {**options, **{key: getattr(values, key) for key in typed}}


def _parameters(found: Any) -> list[inspect.Parameter] | None:
    """Parameters of a call; None where Python does not know them, as of some builtins."""
    try:
        return list(inspect.signature(found).parameters.values())
    except (TypeError, ValueError):
        return None


def _read_hints(found: Any) -> dict[str, Any]:
    """Annotated types by argument; none where they cannot be read, such as types that are imported
    for a type checker alone."""
    annotated: Callable[..., Any] = found if inspect.isroutine(found) else type(found).__call__
    if isinstance(found, type):
        annotated = found.__init__  # type: ignore[misc]
    try:
        if isinstance(found, type) and dataclasses.is_dataclass(found):
            return field_types(found)
        return get_type_hints(annotated, include_extras=True)
    except (NameError, TypeError, AttributeError):
        return {}


def _is_checkable(hint: Any) -> bool:
    """Whether a configuration can have values of a type."""
    try:
        OmegaConf.structured(dataclasses.make_dataclass("Option", [("value", hint)]))
    except (OmegaConfBaseException, ValueError, TypeError):
        return False
    return True
