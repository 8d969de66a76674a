"""Checks whether the servers of a reward could score now."""

import logging
from collections.abc import Callable
from typing import Any

from mmrl.rewards.http.errors import Unreachable
from mmrl.rewards.http.service import Deadline, Service

logger = logging.getLogger(__name__)

LOOK_SECONDS = 5.0
"""Time limit for the answer of an address."""


def why_not_ready(
    service: Service, path: str, problem: Callable[[str, Any], str], name: str
) -> str:
    """Why no server could score now; empty if one could or is busy. Other problems are logged.

    Args:
        service: with all addresses.
        path: that is asked for with `GET`.
        problem: why an address cannot score, by its answer: JSON, or a `Refused`; empty if it can.
        name: of the reward, for the log.
    """

    def lacking(url: str, answer: Any) -> str:
        if not isinstance(answer, Unreachable):
            return problem(url, answer)
        if answer.is_busy:
            logger.info("reward %s: %s is there and busy", name, url)
        return "" if answer.is_busy else f"it is not there: {answer}"

    found = service.look(path, Deadline(LOOK_SECONDS))
    problems = {url: lacking(url, answer) for url, answer in found.items()}
    wrong = "; ".join(f"{url}: {text}" for url, text in problems.items() if text)
    if all(problems.values()):
        return wrong
    if wrong:
        logger.warning("reward %s is without some of its servers: %s", name, wrong)
    return ""
