"""The parts of `scripts/evidence.py`: settings, runs, records, choices, statistics and the page."""
