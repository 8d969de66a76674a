"""Settings of `python -m rewards.probe`: those of the run whose rewards it tries, and its own."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from mmrl.config import check
from mmrl.rl_config import RLConfig

SAMPLES, FEW = 8, 2
"""What each reward scores; and of stand-ins in a dry run, which is to take seconds."""


@dataclass(kw_only=True)
class ProbeConfig(RLConfig):
    """The settings of a run, and of its probe."""

    samples: str | None = None
    """Recorded completions: a run directory or a parquet of its `samples/`; null takes those in
    `output_dir`, and stand-ins where there are none."""
    num_samples: int = SAMPLES
    """Samples each reward scores."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check(self.num_samples >= 2, "num_samples", self.num_samples, "at least 2")
        place = self.samples
        found = place is None or Path(place).exists()
        check(found, "samples", place, "a run directory or a parquet of completions")
