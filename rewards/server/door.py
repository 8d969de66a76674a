"""Checks the token of every request, and logs and counts every answer."""

import hmac
import logging
import time
from typing import Any

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mmrl.rewards.server.metrics import Metrics
from mmrl.rewards.server.refusal import Refusal
from mmrl.rewards.server.wire import ErrorResponse, Problem

logger = logging.getLogger(__name__)

FIELDS = "mmrl.rewards.server.fields"
"""Key in the scope of a request under which the fields of its log line are."""
SCORE, HEALTH, METRICS = "/v1/score", "/v1/health", "/metrics"


class Door:
    """An ASGI application around the one that answers.

    Args:
        app: answers requests.
        token: bearer token of all requests except those for health; None for none.
        metrics: of the server.
    """

    def __init__(self, app: ASGIApp, token: str | None, metrics: Metrics) -> None:
        self.app, self.metrics = app, metrics
        self.expected = None if token is None else f"Bearer {token}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or refuse without the token."""
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        started = time.perf_counter()
        answered: dict[str, Any] = {"status": 500}
        fields = scope[FIELDS] = {}

        async def watch(message: Message) -> None:
            if message["type"] == "http.response.start":
                answered["status"] = message["status"]
            await send(message)

        app = self.app if self._is_welcome(scope) else _unauthorized()
        try:
            await app(scope, receive, watch)
        finally:
            self._note(scope, answered["status"], time.perf_counter() - started, fields)

    def _is_welcome(self, scope: Scope) -> bool:
        if self.expected is None or scope["path"] == HEALTH:
            return True
        given = [value for name, value in scope["headers"] if name == b"authorization"]
        return len(given) == 1 and hmac.compare_digest(given[0], self.expected)

    def _note(self, scope: Scope, status: int, seconds: float, fields: dict[str, Any]) -> None:
        path = scope["path"] if scope["path"] in (SCORE, HEALTH, METRICS) else "other"
        self.metrics.count_answer(path, status, seconds)
        line = {"method": scope["method"][:10], "path": path, "status": status}
        line["seconds"] = round(seconds, 6)
        level = logging.INFO if path == SCORE or status >= 400 else logging.DEBUG
        logger.log(level, "request", extra={"fields": {**line, **fields}})


def refusal_response(refusal: Refusal) -> JSONResponse:
    """The response to a refused request."""
    content = ErrorResponse(error=Problem(code=refusal.code, message=refusal.message))
    retry = {} if refusal.retry_after is None else {"Retry-After": str(refusal.retry_after)}
    return JSONResponse(content.model_dump(), refusal.status, retry)


def _unauthorized() -> JSONResponse:
    answer = refusal_response(Refusal(401, "unauthorized", "The bearer token is missing or wrong."))
    answer.headers["WWW-Authenticate"] = "Bearer"
    return answer
