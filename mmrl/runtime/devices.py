"""Devices that a dry run plans for, by name or memory: `devices=8xA100-80GB`, `devices=2x24GB`."""

import re
from typing import Any, NamedTuple

from mmrl.config import check, check_choice

NAMES = {
    **{"T4": 16, "V100": 16, "A10": 24, "A10G": 24, "L4": 24, "RTX3090": 24, "RTX4090": 24},
    **{"RTX5090": 32, "A40": 48, "L40": 48, "L40S": 48, "A6000": 48, "A100": 80, "H100": 80},
    **{"H20": 96, "GH200": 96, "H200": 141, "B200": 180, "MI250X": 64, "MI300X": 192},
}
"""Nominal memory in GB of a device; `V100-32GB` is the same device with another memory."""
WITHOUT_BF16 = ("T4", "V100")
USABLE = 0.98
"""Share of the nominal memory in GiB that driver and context leave to a process."""
FORM = re.compile(r"(?:(\d+)\s*X\s*)?([A-Z]+[ -]?\d+[A-Z]*)?[\s_-]*(?:(\d+)\s*GB)?")


class Device(NamedTuple):
    """A device that is named, not found: bytes that a process can use, and whether it computes
    bfloat16 natively."""

    name: str
    memory: float
    bf16: bool = True


def read_devices(text: str) -> tuple[int | None, Device]:
    """The number of devices, None where there is none, and one of them. Raises ConfigError: an
    unknown device, or none at all."""
    found = FORM.fullmatch(text.strip().upper())
    allowed = "a number, x, and a name or memory, such as 8xA100-80GB or 2x24GB"
    check(bool(found and (found[2] or found[3])) and "0" not in text[:1], "devices", text, allowed)
    assert found is not None
    name = re.sub(r"[ -]", "", found[2] or "")
    if name:
        check_choice("devices", name, NAMES)
    memory = int(found[3] or NAMES[name])
    shown = "-".join(filter(None, (name, found[3] and f"{memory}GB")))
    usable = USABLE * memory * 2**30
    return int(found[1]) if found[1] else None, Device(shown, usable, name not in WITHOUT_BF16)


def check_planned(settings: Any) -> None:
    """Raise a ConfigError for `devices` or `verbose` that are wrong, or of no dry run."""
    for key, absent in (("devices", None), ("verbose", False)):
        value = getattr(settings, key)
        check(value == absent or settings.dry_run, key, value, f"{absent} without dry_run".lower())
    if settings.devices is not None:
        read_devices(settings.devices)
