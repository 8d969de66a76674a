"""Objects of Python's library: both processes have them, so only a name or a recipe is sent."""

import builtins
import copyreg
import importlib
import sys
import types
from collections.abc import Callable
from typing import Any

_NAMED = (
    type,
    types.FunctionType,
    types.BuiltinFunctionType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.ClassMethodDescriptorType,
)
_VIEWS = {type({}.keys()): dict.keys, type({}.values()): dict.values, type({}.items()): dict.items}
_PLAIN_TYPES = "int float complex bool str bytes list tuple set frozenset dict range"
PLAIN_TYPES = {name: getattr(builtins, name) for name in _PLAIN_TYPES.split()}
PLAIN_TYPES["NoneType"] = type(None)
"""Types that a candidate may return; using them in a test is harmless."""


def find_name(value: Any) -> list[str] | None:
    """Module and name of an object of the library; None for any other object."""
    if isinstance(value, types.ModuleType):
        return [value.__name__, ""] if _is_library(value.__name__) else None
    if not isinstance(value, _NAMED):
        name = _reduce(value)
        module = getattr(value, "__module__", None) or "builtins"
        return _find(value, module, name) if isinstance(name, str) else None
    module = getattr(value, "__module__", None) or getattr(value, "__objclass__", None)
    module = module.__module__ if isinstance(module, type) else module
    return _find(value, module, value.__qualname__) or _find(value, "types", value.__qualname__)


def find_named(module: str, name: str) -> Any:
    """The object of that name."""
    found: Any = importlib.import_module(module)
    for part in filter(None, name.split(".")):
        found = getattr(found, part)
    return found


def build_recipe(value: Any) -> list[Any] | None:
    """How to rebuild an object of a library class, as `copy` does: a function, its arguments, and
    its state; None if it cannot be copied."""
    if type(value) in _VIEWS:
        return [_VIEWS[type(value)], (dict(value.mapping),)]
    recipe = _reduce(value)
    if not isinstance(recipe, tuple):
        return None
    function, arguments, state, items, pairs = (*recipe, None, None, None)[:5]
    return [function, arguments, state, list(items or ()), list(pairs or ())]


def _reduce(value: Any) -> str | tuple[Any, ...] | None:
    """The result of `__reduce_ex__` for an object of a library class; None if there is none."""
    if not _is_library(type(value).__module__):
        return None
    try:
        known = copyreg.dispatch_table.get(type(value))
        return known(value) if known else value.__reduce_ex__(2)
    except Exception:  # classes that cannot be copied raise various errors
        return None


def rebuild(
    function: Callable[..., Any],
    arguments: tuple[Any, ...],
    state: Any = None,
    items: list[Any] | None = None,
    pairs: list[Any] | None = None,
) -> Any:
    """The object that a recipe describes."""
    value = function(*arguments)
    if state is not None and hasattr(value, "__setstate__"):
        value.__setstate__(state)
    elif state is not None:
        content, slots = state if isinstance(state, tuple) else (state, None)
        vars(value).update(content or {})
        for name, each in (slots or {}).items():
            setattr(value, name, each)
    for item in items or ():
        value.append(item)
    for key, each in pairs or ():
        value[key] = each
    return value


def build_exception(reply: dict[str, Any]) -> Exception:
    """The exception that the other side raised; a `RuntimeError` if its class is unknown here."""
    kind = getattr(builtins, str(reply["raised"]), None)
    text = str(reply.get("text"))
    # as in a generator (PEP 479): `all(map(f, xs))` would read it as the end of xs
    ends = kind is StopIteration
    if ends or not (isinstance(kind, type) and issubclass(kind, Exception)):
        return RuntimeError(f"{reply['raised']}: {text}")
    try:
        return kind(text)
    except TypeError:
        return RuntimeError(f"{kind.__name__}: {text}")


def _find(value: Any, module: Any, name: str) -> list[str] | None:
    if not isinstance(module, str) or not _is_library(module):
        return None
    try:
        return [module, name] if find_named(module, name) is value else None
    except (ImportError, AttributeError):
        return None


def _is_library(module: str) -> bool:
    return module.partition(".")[0] in sys.stdlib_module_names
