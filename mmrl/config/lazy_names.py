"""Names of a package that are imported when they are first used.

Settings and their checks know no torch, so that a question for help or a misspelt key is answered
at once. What computes stands in modules that import it, and is reached through these names.
"""

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any


def lazy_names(package: str, modules: Mapping[str, Sequence[str]]) -> Callable[[str], Any]:
    """A `__getattr__` of a package (PEP 562) that imports a name's module when it is asked for.

    Args:
        package: name of the package.
        modules: module below it -> the names it has.
    """
    homes = {name: f"{package}.{module}" for module, names in modules.items() for name in names}

    def get(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(importlib.import_module(homes[name]), name)

    return get
