"""Python objects by name: `path/to/file.py:function`, or `module:Class` for what can be imported.

Paths are relative to the current directory. A file is loaded once, however its path is spelt; one
that is imported already, or is the running program, is not loaded again.
"""

import hashlib
import importlib
import importlib.util
import os
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any

from mmrl.config.checks import ConfigError, suggest

FROM_FILE = "loaded_from_file_"
"""Prefix of the names of modules that are loaded by the path of their file."""


def is_by_name(name: Any) -> bool:
    """Whether a name has this form: a file or module, a colon, and the name inside."""
    return isinstance(name, str) and all(name.rpartition(":"))


def find(name: str, where: str) -> Any:
    """Find the object of a name; `where` is its dotted key, for messages. Raises ConfigError: no
    such file, module or object, or a file that cannot be loaded."""
    place, _, path = name.rpartition(":")
    if "<" in path or " " in path or place == "__main__":
        raise ConfigError(
            f"{where} is {name!r}: given from Python, and found by no name. Give it from Python"
            " again, or write a function in a file and name path/to/file.py:function."
        )
    try:
        module: Any = _load(place)
    except Exception as error:  # code of others raises anything
        raise ConfigError(f"{where} is {name!r}: {_explain(error, place)}") from error
    found: Any = module
    for part in path.split("."):
        if not hasattr(found, part):
            there = [k for k, v in vars(module).items() if callable(v) and not k.startswith("_")]
            has = f"It has {', '.join(there) or 'nothing'}."
            raise ConfigError(
                f"{where} is {name!r}: {place} has no {path!r}.{suggest(path, there)} {has}"
            )
        found = getattr(found, part)
    return found


def write_name(value: Any) -> str:
    """Write the name by which `find` finds a function or class. Other objects are described in a
    form for which `find` raises an explanation."""
    kind = value if hasattr(value, "__qualname__") else type(value)
    module, path = getattr(kind, "__module__", None) or "builtins", kind.__qualname__
    file = getattr(sys.modules.get(module), "__file__", None)
    if file and (module == "__main__" or module.startswith(FROM_FILE)):
        own = Path(file).resolve()
        place = str(own.relative_to(Path.cwd()) if own.is_relative_to(Path.cwd()) else own)
    else:
        place = module
    found: Any = sys.modules.get(module)
    for part in path.split("."):
        found = getattr(found, part, None)
    return f"{place}:{path}" if found is value or "<" in path else f"{place}:{path} object"


def source_of(value: Any) -> bytes:
    """The source file of a function or class as bytes; empty without one."""
    module = sys.modules.get(getattr(value, "__module__", None) or "")
    file = getattr(module, "__file__", None)
    return Path(file).read_bytes() if file and Path(file).is_file() else b""


def _load(place: str) -> ModuleType:
    """Import a module, or load a file that is not imported yet."""
    if not place.endswith(".py"):
        return importlib.import_module(place)
    path = Path(place).expanduser().resolve()
    for module in list(sys.modules.values()):
        file = str(getattr(module, "__dict__", {}).get("__file__"))
        if os.path.basename(file) == path.name and os.path.realpath(file) == str(path):
            return module
    own = f"{FROM_FILE}{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:12]}"
    spec = importlib.util.spec_from_file_location(own, path)
    assert spec is not None and spec.loader is not None  # it is a .py file
    module = sys.modules[own] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[own]
        raise
    return module


def _explain(error: Exception, place: str) -> str:
    """Why a file or module cannot be loaded, with the line."""
    is_file, here = place.endswith(".py"), Path.cwd()
    if is_file and not Path(place).expanduser().is_file():
        return f"there is no file {place!r}. Paths are relative to the current directory, {here}."
    if isinstance(error, ModuleNotFoundError) and f"{place}.".startswith(f"{error.name}."):
        return f"there is no module {error.name!r}; a file is named path/to/file.py:function."
    calls = traceback.extract_tb(error.__traceback__)
    file, line = [call[:2] for call in calls if not call.filename.startswith("<")][-1]
    named = "" if isinstance(error, SyntaxError) else f"{Path(file).name}, line {line}: "
    return f"it cannot be loaded: {named}{type(error).__name__}: {error}"
