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
PEAKS = {
    **{"T4": (65, 0.32), "V100": (125, 0.9), "A10": (125, 0.6), "L4": (121, 0.3)},
    **{"RTX3090": (71, 0.94), "RTX4090": (165, 1.0), "RTX5090": (210, 1.8), "A40": (150, 0.7)},
    **{"L40S": (362, 0.86), "A6000": (155, 0.77), "A100": (312, 2.0), "H100": (989, 3.35)},
    **{"H20": (148, 4.0), "GH200": (989, 4.0), "H200": (989, 4.8), "B200": (2250, 8.0)},
    "MI300X": (1307, 5.3),
}
"""What makers state: dense products in half precision, TFLOP/s, and the memory's TB/s."""
WITHOUT_BF16 = ("T4", "V100")
USABLE = 0.98
"""Share of the nominal memory in GiB that driver and context leave to a process."""
FORM = re.compile(r"(?:(\d+)\s*X\s*)?([A-Z]+[ -]?\d+[A-Z]*)?[\s_-]*(?:(\d+)\s*GB)?")


class Device(NamedTuple):
    """A device that is named, not found: bytes that a process can use, whether it computes bfloat16
    natively, and its entry in `PEAKS`."""

    name: str
    memory: float
    bf16: bool = True
    peak: tuple[float, float] | None = None


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
    device = Device(shown, usable, name not in WITHOUT_BF16, PEAKS.get(name))
    return int(found[1]) if found[1] else None, device


def check_planned(settings: Any) -> None:
    """Raise a ConfigError for `devices` or `verbose` that are wrong, or of no dry run."""
    for key, absent in (("devices", None), ("verbose", False)):
        value = getattr(settings, key)
        check(value == absent or settings.dry_run, key, value, f"{absent} without dry_run".lower())
    if settings.devices is not None:
        read_devices(settings.devices)
