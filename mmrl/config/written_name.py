"""Names of functions and classes in a configuration that is written down, see
`mmrl.config.by_name`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

FROM_FILE = "loaded_from_file_"
"""What the names of modules begin with that were loaded by the path of their file."""


def written_name(value: Any) -> str:
    """The name by which `mmrl.config.by_name.find` finds a function or class. Of anything else it
    says what it is, in a form that `find` explains."""
    kind = value if hasattr(value, "__qualname__") else type(value)
    module, path = getattr(kind, "__module__", None) or "builtins", kind.__qualname__
    file = getattr(sys.modules.get(module), "__file__", None)
    if file and (module == "__main__" or module.startswith(FROM_FILE)):
        place = _shown(Path(file))
    else:
        place = module
    found: Any = sys.modules.get(module)
    for part in path.split("."):
        found = getattr(found, part, None)
    return f"{place}:{path}" if found is value or "<" in path else f"{place}:{path} object"


def _shown(path: Path) -> str:
    """A path from the current directory where it is below it."""
    path = path.resolve()
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)
