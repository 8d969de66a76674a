"""Recognises the protocol of a server by its answers to `GET`."""

from collections.abc import Callable
from functools import partial
from typing import Any

from mmrl.rewards.http.errors import Refused
from mmrl.rewards.http.service import Deadline, Service

SECONDS = 2.0
"""For each page."""
_AT_V1 = "with /v1 at the end of the URL"


def lists_rewards(answer: Any, kind: type) -> bool:
    """Whether a page lists rewards: a dict each in our protocol, a name each in UniRL's."""
    rewards = answer.get("rewards") if isinstance(answer, dict) else None
    return isinstance(rewards, list) and all(isinstance(each, kind) for each in rewards)


def _lists_models(answer: Any) -> bool:
    return isinstance(answer, dict) and isinstance(answer.get("data"), list)


def takes_posts_alone(answer: Any) -> bool:
    """Whether a page exists for `POST` alone, the only sign of flow_grpo's servers."""
    return isinstance(answer, Refused) and answer.status == 405


SIGNS: tuple[tuple[str, Callable[[Any], bool], str, str], ...] = (
    ("/v1/health", partial(lists_rewards, kind=dict), "is a reward server of mmrl", "mmrl"),
    ("/rewards", partial(lists_rewards, kind=str), "is UniRL's reward service", "unirl"),
    ("/v1/models", _lists_models, "is a server of OpenAI's protocol at /v1", f"openai, {_AT_V1}"),
    ("/models", _lists_models, "is a server of OpenAI's protocol", "openai"),
    ("/", takes_posts_alone, "may be a server of flow_grpo", "flow_grpo"),
)
"""Page, its check, what the server is, and its protocol."""


def recognise(url: str) -> str:
    """What a server is, and which setting fits it; empty if it is unknown.

    Args:
        url: its address, without a path of a protocol.
    """
    service = Service([url], timeout_s=SECONDS)
    try:
        for path, is_it, kind, protocol in SIGNS:
            if is_it(service.look(path, Deadline(SECONDS))[service.urls[0]]):
                return f"it {kind}: set protocol: {protocol}"
    finally:
        service.close()
    return ""
