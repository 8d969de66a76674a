"""A judge behind OpenAI's chat completions: `POST {url}/chat/completions`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rewards.judging.reply import ReplyError
from rewards.service import Deadline, Refused, Service, Unreachable

LOOK_SECONDS = 5.0


class Endpoint:
    """Asks a service the requests of the judge.

    Args:
        service: its addresses end where `/chat/completions` begins.
    """

    def __init__(self, service: Service) -> None:
        self.service = service

    def ask(self, requests: Sequence[dict[str, Any]], deadline: Deadline) -> list[str | Exception]:
        """The replies in order; what failed has its exception: `Unreachable`, `Refused`, or a
        `ReplyError` where the answer is no chat completion with words."""
        answers = self.service.post_all("/chat/completions", requests, deadline)
        return [_words(answer) for answer in answers]

    def ready(self, model: str) -> str:
        """Why the service could not answer for a model now; empty if it says that it could."""
        try:
            listed = self.service.get("/models", Deadline(LOOK_SECONDS))
        except Refused as error:
            # a service need not list its models
            return "" if error.status == 404 else str(error)
        except Unreachable as error:
            return str(error)
        data = listed.get("data") if isinstance(listed, dict) else None
        names = [str(row.get("id")) for row in data or [] if isinstance(row, dict)]
        if names and model not in names:
            return f"{self.service.urls[0]} serves {', '.join(names)}, and judge.model is {model!r}"
        return ""


def _words(answer: Any) -> str | Exception:
    if isinstance(answer, Exception):
        return answer
    try:
        message = answer["choices"][0]["message"]
        words, refusal = message["content"], message.get("refusal")
    except (LookupError, TypeError, AttributeError):
        return ReplyError(f"is no chat completion: {str(answer)[:200]!r}")
    if not isinstance(words, str):
        return ReplyError(f"has no words but {str(refusal or words)[:200]!r}")
    return words
