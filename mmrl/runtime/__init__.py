"""The process a run lives in: device, precision, launch, signals, progress on a terminal."""
