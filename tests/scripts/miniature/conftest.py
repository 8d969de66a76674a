"""The images that the supervised runs of `tests/mmrl` train on."""

from tests.mmrl.conftest import images

__all__ = ["images"]
