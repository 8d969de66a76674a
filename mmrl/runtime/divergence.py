"""A training that has come to nothing."""


class DivergenceError(RuntimeError):
    """A loss or gradient that is no longer finite."""
