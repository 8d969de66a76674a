"""The HTTP side: paths, typed models, and errors in one form."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp

from mmrl.rewards.server.door import FIELDS, HEALTH, METRICS, SCORE, Door, refusal_response
from mmrl.rewards.server.refusal import Refusal
from mmrl.rewards.server.request_memory import read_body
from mmrl.rewards.server.scoring_service import ScoringService
from mmrl.rewards.server.wire import Health

_CODES = {404: "not_found", 405: "method_not_allowed"}


def build_app(service: ScoringService, token: str | None) -> ASGIApp:
    """The application; its rewards begin to load when it starts.

    Args:
        service: what is served.
        token: bearer token, or None.
    """

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        service.start()
        yield
        service.stop()

    app = FastAPI(openapi_url=None, redirect_slashes=False, lifespan=lifespan)
    for kind, handler in _HANDLERS.items():
        app.add_exception_handler(kind, handler)

    @app.post(SCORE)
    async def score(request: Request) -> Response:
        # FastAPI would accept a body of any size, and parse it before any check.
        _check_kind(request)
        with service.budget.lease() as lease:
            body = await read_body(request, service.limits, lease)
            answer = await service.answer(body, lease, request.scope[FIELDS])
        return Response(answer.body, media_type="application/json")

    @app.get(HEALTH)
    async def health() -> Health:
        return service.health()

    @app.get(METRICS)
    async def metrics() -> Response:
        return Response(service.metrics.text(), media_type=CONTENT_TYPE_LATEST)

    return Door(app, token, service.metrics)


def _check_kind(request: Request) -> None:
    """Raise a `Refusal` unless the content type is JSON. A foreign web page cannot make a browser
    send that without a preflight request, so it cannot use a server of this machine."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise Refusal(415, "not_json", "Send Content-Type: application/json.")


async def _refusal(request: Request, error: Any) -> Response:
    request.scope.get(FIELDS, {})["code"] = error.code
    return refusal_response(error)


async def _http_error(request: Request, error: Any) -> Response:
    code = _CODES.get(error.status_code, "http_error")
    return await _refusal(request, Refusal(error.status_code, code, str(error.detail)))


async def _defect(request: Request, error: Any) -> Response:
    return refusal_response(Refusal(500, "internal", "The server has a defect; its log has more."))


_HANDLERS: dict[type[Exception], Any] = {
    Refusal: _refusal,
    HTTPException: _http_error,
    Exception: _defect,
}
