"""The error of a training that has diverged."""


class DivergenceError(RuntimeError):
    """A loss or gradient that is no longer finite."""
