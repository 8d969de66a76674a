"""A judge behind OpenAI's chat completions: `POST {url}/chat/completions`."""

from collections.abc import Sequence
from typing import Any

from mmrl.rewards.http.service import Deadline, Refused, Service
from mmrl.rewards.judging.reply import CutReply, ReplyError, sum_yes


class Endpoint:
    """Sends the requests of the judge to a service, by addresses without `/chat/completions`."""

    def __init__(self, service: Service) -> None:
        self.service = service

    def ask(self, requests: Sequence[dict[str, Any]], deadline: Deadline) -> list[str | Exception]:
        """The replies in order; what failed has its exception: `Unreachable`, `Refused`, or a
        `ReplyError` where the answer is no chat completion with words."""
        answers = self.service.post_all("/chat/completions", requests, deadline)
        return [
            (_probability if request.get("logprobs") else _words)(answer)
            for request, answer in zip(requests, answers, strict=True)
        ]

    def ready(self, model: str) -> str:
        """Why no address could answer for a model now; empty if one could, or is busy."""

        unlisted = []

        def problem(listed: Any) -> str:
            if isinstance(listed, Refused):  # a service need not list its models
                unlisted.append(listed)
                return "" if listed.status == 404 else str(listed)
            data = listed.get("data") if isinstance(listed, dict) else None
            names = [str(row.get("id")) for row in data or [] if isinstance(row, dict)]
            wrong = names and model not in names
            return f"it serves {', '.join(names)}, and judge.model is {model!r}" if wrong else ""

        said = self.service.why_not_ready("/models", problem, f"judge {model}")
        if said or not unlisted:
            return said
        return self.service.why_not_ready("/chat/completions", _no_completions, f"judge {model}")


def _no_completions(page: Any) -> str:
    """Why an address is no judge: completions accept `POST` alone, but are there."""
    if not isinstance(page, Refused) or page.status != 404:
        return ""
    advice = "it is appended to the address, which has to be given with /v1 at the end of the URL"
    return f"{page}; {advice}, if the server wants it so"


def _probability(answer: Any) -> str | Exception:
    """The probability of yes, among the words that the server lists."""
    if isinstance(answer, Exception):
        return answer
    try:
        first = answer["choices"][0]["logprobs"]["content"][0]["top_logprobs"]
        return sum_yes((str(each["token"]), float(each["logprob"])) for each in first)
    except (LookupError, TypeError, ValueError):
        return ReplyError(f"lists no log-probs of its first word: {str(answer)[:200]!r}")


def _words(answer: Any) -> str | Exception:
    if isinstance(answer, Exception):
        return answer
    try:
        choice = answer["choices"][0]
        message, cut = choice["message"], choice.get("finish_reason") == "length"
        words, refusal = message["content"], message.get("refusal")
    except (LookupError, TypeError, AttributeError):
        return ReplyError(f"is no chat completion: {str(answer)[:200]!r}")
    if cut and (words is None or isinstance(words, str)):
        return CutReply(words or "")
    if not isinstance(words, str):
        return ReplyError(f"has no words but {str(refusal or words)[:200]!r}")
    return words
