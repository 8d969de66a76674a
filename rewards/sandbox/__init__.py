"""Where code written by a model runs: isolated processes, here or on another machine."""
