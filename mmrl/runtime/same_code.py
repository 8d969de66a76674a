"""Whether all processes of a run execute the same code.

Nodes often have separate installations. Processes whose code differs may wait for each other for
ever, or train on different gradients, so their sources and packages are compared at the start.
"""

import hashlib
import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from accelerate import Accelerator
from accelerate.utils import gather_object

from mmrl.config import ConfigError

SOURCES = Path(__file__).parents[1]
PACKAGES = ("torch", "accelerate", "deepspeed", "transformers", "peft", "safetensors")


def check_same_code(accelerator: Accelerator) -> None:
    """Compare this process with the others; all processes call this.

    Raises:
        ConfigError: a process has other sources, or another version of a package.
    """
    if accelerator.num_processes == 1:
        return
    hosts, codes = gather_object([platform.node()]), gather_object([describe_code()])
    for rank, code in enumerate(codes):
        for key in (key for key in code if code[key] != codes[0][key]):
            raise ConfigError(
                f"{key} is {code[key]} in process {rank} on {hosts[rank]}, and {codes[0][key]} in"
                f" process 0 on {hosts[0]}. Processes of a run must execute the same code: install"
                " the same commit and the same packages (constraints.txt) on every node."
            )


def describe_code() -> dict[str, str]:
    """A digest of the sources of the project, and versions of what they import."""
    versions = {f"the version of {name}": _version(name) for name in PACKAGES}
    return {"the source of mmrl": _digest(SOURCES)} | versions


def _digest(folder: Path) -> str:
    found = hashlib.sha256()
    # `Path.rglob` follows no links, and parts of a checkout are linked
    walked = os.walk(folder, followlinks=True)
    inside = (Path(place, name) for place, _, names in walked for name in names)
    for path in sorted(path for path in inside if path.suffix == ".py"):
        found.update(path.relative_to(folder).as_posix().encode() + b"\0" + path.read_bytes())
    return found.hexdigest()[:12]


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
