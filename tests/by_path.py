"""Scripts of folders that are no packages, such as those below datasets/."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType


def load(folder: Path, name: str) -> ModuleType:
    """The script `name` of a folder as a module; it may import scripts loaded before it."""
    spec = importlib.util.spec_from_file_location(name, folder / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
