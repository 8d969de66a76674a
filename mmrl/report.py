"""Report of a run."""

from pathlib import Path


def write_report(run: Path) -> None:
    """Placeholder until the page is written."""
