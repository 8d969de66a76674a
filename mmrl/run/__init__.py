"""The run directory: log, metrics, checkpoints, report and image grids."""
