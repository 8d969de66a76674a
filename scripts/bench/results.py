"""Where benchmarks write: a JSON line on standard output, and added to a file of such lines."""

import json
import platform
import subprocess
import sys
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]

PACKAGES = ("accelerate", "deepspeed")
"""Packages whose versions a line has beside that of torch, where they are installed."""
FOLDER = "runs/bench"
"""Where lines are added; those of `scripts/bench/results/` are copied from there."""


def report(line: dict[str, Any], folder: str | None = FOLDER) -> None:
    """Print a line, and add it to `<bench>.jsonl` in a folder, which is named on standard error.

    Args:
        line: of a result; `bench` names the benchmark.
        folder: is made; None for none.
    """
    text = json.dumps(line)
    print(text, flush=True)
    if folder:
        path = Path(folder) / f"{line['bench']}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a") as file:
            file.write(text + "\n")
        print(f"added to {path}", file=sys.stderr)


def circumstances(cpu: bool = True) -> dict[str, Any]:
    """Commit, hardware and versions.

    Args:
        cpu: whether an accelerator that is there was not used.
    """
    import torch

    git = ["git", "-C", str(ROOT), "describe", "--always", "--dirty"]
    commit = subprocess.run(git, stdout=subprocess.PIPE, text=True).stdout.strip()
    versions = {"python": platform.python_version(), "torch": torch.__version__}
    for name in PACKAGES:
        with suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    hardware = f"{processor()}, {torch.get_num_threads()} threads"
    if not cpu and torch.cuda.is_available():
        hardware = f"{torch.cuda.get_device_name()}, {hardware}"
        versions["cuda"] = torch.version.cuda or ""
    capability = torch.backends.cpu.get_cpu_capability()
    return {"commit": commit, "hardware": hardware, "cpu": capability, "versions": versions}


def processor() -> str:
    """Name of the CPU."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()
