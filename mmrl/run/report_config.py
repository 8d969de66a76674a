"""What a report says in its first line, and which other run it draws beside this one."""

from dataclasses import dataclass

from mmrl.config import Settings


@dataclass(kw_only=True)
class ReportConfig(Settings):
    """The headline and the control of `report.html`."""

    metric: str | None = None
    """Held-out metric of the headline, such as eval/shapes/strict; null is the first one."""
    said: str = ""
    """What a share of that metric is of, as in "13 % → 53 % {said}"; empty shows plain numbers."""
    control: str | None = None
    """The `metrics.jsonl` of a run that cannot learn, such as one with `shuffle_advantages`: its
    curves are drawn dashed, and its change is part of the headline."""
