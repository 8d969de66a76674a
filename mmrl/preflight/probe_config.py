"""Settings of `python -m mmrl.probe`: those of the run, and which samples its rewards score."""

from dataclasses import dataclass
from pathlib import Path

from mmrl.config import check
from mmrl.rl_config import RLConfig

SAMPLES, FEW = 8, 2
"""Samples that each reward scores; dummy samples in a dry run, which is to take seconds."""


@dataclass(kw_only=True)
class ProbeConfig(RLConfig):
    """The settings of a run and of its probe."""

    samples: str | None = None
    """Recorded completions: a run directory or a parquet of its `samples/`; null takes those in
    `output_dir`, and dummy samples where there are none."""
    num_samples: int = SAMPLES
    """Samples each reward scores."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check(self.num_samples >= 2, "num_samples", self.num_samples, "at least 2")
        found = self.samples is None or Path(self.samples).exists()
        check(found, "samples", self.samples, "a run directory or a parquet of completions")
