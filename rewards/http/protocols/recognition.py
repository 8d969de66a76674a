"""Recognises the protocol of a server by its answers to `GET`."""

from collections.abc import Callable
from typing import Any

from rewards.http.errors import Refused
from rewards.http.service import Deadline, Service

SECONDS = 2.0
"""For each page."""


def _is_mmrl(answer: Any) -> bool:
    rewards = answer.get("rewards") if isinstance(answer, dict) else None
    return isinstance(rewards, list) and all(isinstance(each, dict) for each in rewards)


def _is_unirl(answer: Any) -> bool:
    rewards = answer.get("rewards") if isinstance(answer, dict) else None
    return isinstance(rewards, list) and all(isinstance(each, str) for each in rewards)


def _lists_models(answer: Any) -> bool:
    return isinstance(answer, dict) and isinstance(answer.get("data"), list)


def takes_posts_alone(answer: Any) -> bool:
    """Whether a page exists for `POST` alone, the only sign of flow_grpo's servers."""
    return isinstance(answer, Refused) and answer.status == 405


SIGNS: tuple[tuple[str, Callable[[Any], bool], str], ...] = (
    ("/v1/health", _is_mmrl, "it is a reward server of mmrl: set protocol: mmrl"),
    ("/rewards", _is_unirl, "it is UniRL's reward service: set protocol: unirl"),
    (
        "/v1/models",
        _lists_models,
        "it is a server of OpenAI's protocol at /v1: set protocol:"
        " openai, with /v1 at the end of the URL",
    ),
    ("/models", _lists_models, "it is a server of OpenAI's protocol: set protocol: openai"),
    ("/", takes_posts_alone, "it may be a server of flow_grpo: set protocol: flow_grpo"),
)
"""Page, how it looks, and what to do."""


def recognise(url: str) -> str:
    """What a server is, and which setting fits it; empty if it is unknown.

    Args:
        url: its address, without a path of a protocol.
    """
    service = Service([url], timeout_s=SECONDS)
    try:
        for path, is_it, advice in SIGNS:
            if is_it(service.look(path, Deadline(SECONDS))[service.urls[0]]):
                return advice
    finally:
        service.close()
    return ""
