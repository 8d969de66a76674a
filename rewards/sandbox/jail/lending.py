"""Objects that tests pass to a candidate and that cannot be sent by value.

The candidate creates its own copy of an object of Python's library, by name or from a recipe. All
other objects stay with the tester and are lent. A candidate may call a lent function, take the next
item of a lent iterator, and use operators and public attributes of an object whose class the tests
define. Attributes of functions, generators and library objects are refused, because they lead to
the tests themselves.
"""

import io
import operator
import types
from collections.abc import Callable, Iterator
from enum import Enum
from typing import Any

from .library import build_recipe, find_name

TESTS = "tests"
"""Module name of the tests, and so of the classes they define."""
_BY_OPERATOR = "eq ne lt le gt ge add sub mul truediv floordiv mod pow neg getitem setitem contains"
OPERATIONS: dict[str, Callable[..., Any]] = {
    **{name: getattr(operator, name) for name in _BY_OPERATOR.split()},
    **{"len": len, "iter": iter, "hash": hash, "bool": bool, "str": str, "repr": repr},
}
"""Operations on an object of a test class, by the name between the underscores."""
_FUNCTIONS = (types.FunctionType, types.MethodType, types.BuiltinFunctionType, type)


class Lender:
    """Stores passed objects, and uses the lent ones on behalf of a candidate.

    Attributes:
        objects: all passed objects that are not plain values, by number.
        kinds: of each: `function`, `iterator` and `object` are lent; of a `named` or `built` one
            the candidate has its own copy.
    """

    def __init__(self) -> None:
        self.objects: list[Any] = []
        self.kinds: list[str] = []
        self._numbers: dict[int, int] = {}

    def hand_over(self, value: Any, encoded: Callable[[Any], Any]) -> list[Any]:
        """Number and kind of an object, and what the candidate needs for its proxy or copy.

        Args:
            value: the object; its number never changes.
            encoded: JSON of the parts of a recipe.
        """
        number = self._numbers.setdefault(id(value), len(self.objects))
        kind, about = _manner(value)
        if number == len(self.objects):
            self.objects.append(value)
            self.kinds.append(kind)
        if kind == "built":
            about = [encoded(part) for part in about]
        return [number, kind, about]

    def call(self, number: int, arguments: list[Any], named: dict[str, Any]) -> Any:
        """Call a function or a callable object."""
        return self._lent(number, "function", "object")(*arguments, **named)

    def next(self, number: int) -> Any:
        """The next item of an iterator.

        Raises:
            StopIteration: there is none.
        """
        return next(self._lent(number, "iterator", "object"))

    def operate(self, number: int, name: str, arguments: list[Any]) -> Any:
        """Apply one of `OPERATIONS`."""
        value = self._lent(number, "object")
        if not _classes(value):
            raise TypeError(f"a {type(value).__name__} of the tests has no {name}")
        return OPERATIONS[name](value, *arguments)

    def getattr(self, number: int, name: str) -> Any:
        """A public attribute."""
        value = self._lent(number, "object")
        own = _classes(value)
        holders = [vars(cls) for cls in (*own, Enum)] if own else []
        holders += [vars(value)] if own and hasattr(value, "__dict__") else []
        if name.startswith("_") or not any(name in holder for holder in holders):
            raise AttributeError(f"{type(value).__name__!r} object has no attribute {name!r}")
        return getattr(value, name)

    def setattr(self, number: int, name: str, value: Any) -> None:
        """Set a public attribute."""
        owner = self._lent(number, "object")
        if name.startswith("_") or not _classes(owner):
            raise AttributeError(f"{type(owner).__name__!r} object has no attribute {name!r}")
        setattr(owner, name, value)

    def _lent(self, number: int, *kinds: str) -> Any:
        if self.kinds[number] not in kinds:
            raise TypeError(f"this object of the tests is not a {' or '.join(kinds)}")
        return self.objects[number]


def _manner(value: Any) -> tuple[str, Any]:
    """The kind of an object and what the candidate needs to know about it."""
    if (name := find_name(value)) is not None:
        return "named", name
    word = str(getattr(value, "__name__", type(value).__name__))
    if _classes(value):
        return "object", type(value).__name__
    if isinstance(value, Iterator) and not isinstance(value, io.IOBase):
        return "iterator", word
    if isinstance(value, _FUNCTIONS):
        return "function", word
    if (recipe := build_recipe(value)) is not None:
        return "built", recipe
    return ("function" if callable(value) else "object"), word


def _classes(value: Any) -> list[type]:
    """The classes of an object that the tests define; none for a class itself."""
    if isinstance(value, type):
        return []
    return [cls for cls in type(value).__mro__ if cls.__module__ == TESTS]
