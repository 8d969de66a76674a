"""Failures of what follows a model: a report, a card, an upload. They are warnings."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

logger = logging.getLogger(__name__)


@contextmanager
def warn_of_failure(what: str, repeat: str) -> Iterator[None]:
    """Warn of a failure inside the context, where `what` is done, and how to `repeat` it; it
    changes neither the model nor how a run ends."""
    try:
        yield
    except Exception as error:  # code of others raises anything
        said = " ".join(str(error).split()) or "no reason given"
        logger.warning("%s failed (%s: %s). %s", what, type(error).__name__, said, repeat)
