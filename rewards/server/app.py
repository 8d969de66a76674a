"""The HTTP side: paths, the bearer token, bodies within limits, and errors in one form."""

import asyncio
import hmac
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from mmrl.rewards.server.scoring_service import ScoringService
from mmrl.rewards.server.server_config import REQUEST_COPIES, Limits
from mmrl.rewards.server.wire import Refusal

SCORE, HEALTH = "/v1/score", "/v1/health"


def build_app(service: ScoringService, token: str) -> ASGIApp:
    """The application; its rewards begin to load when it starts. An empty token is none."""

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        running = asyncio.create_task(service.run())
        yield
        running.cancel()

    async def score(request: Request) -> Response:
        length = _check_head(request, service.limits)
        with service.hold(max(2**20, REQUEST_COPIES * length)):  # limits the number of small ones
            body = await _read_body(request, service.limits)
            return JSONResponse(await service.answer(body))

    routes = [
        Route(SCORE, score, methods=["POST"]),
        Route(HEALTH, lambda request: JSONResponse(service.health())),
    ]
    handlers: Any = {Refusal: _refuse, HTTPException: _refuse}
    app = Starlette(routes=routes, lifespan=lifespan, exception_handlers=handlers)
    app.router.redirect_slashes = False
    return demand_token(token, app) if token else app


def demand_token(token: str, app: ASGIApp) -> ASGIApp:
    """The application for those who bring the token; health is for everybody."""
    expected = f"Bearer {token}".encode()
    content = {"error": {"code": "unauthorized", "message": "The token is missing or wrong."}}
    refusal = JSONResponse(content, 401, {"WWW-Authenticate": "Bearer"})

    async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
        given = [value for name, value in scope.get("headers", ()) if name == b"authorization"]
        is_open = scope["type"] != "http" or scope["path"] == HEALTH
        is_welcome = len(given) == 1 and hmac.compare_digest(given[0], expected)
        await (app if is_open or is_welcome else refusal)(scope, receive, send)

    return guarded


def _check_head(request: Request, limits: Limits) -> int:
    """The length of the body. A content type of JSON cannot be sent by a foreign web page without
    a preflight request, so none can use a server of this machine."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise Refusal(415, "not_json", "Send Content-Type: application/json.")
    length = request.headers.get("content-length", "")
    if not length.isdecimal():
        raise Refusal(411, "no_length", "Send Content-Length.")
    if int(length) > limits.max_bytes:
        raise Refusal(413, "too_many_bytes", f"A body may have {limits.max_bytes:,} bytes.")
    return int(length)


async def _read_body(request: Request, limits: Limits) -> bytes:
    """The body, of the length that its head claims, as uvicorn makes sure."""
    try:
        return await asyncio.wait_for(request.body(), limits.body_seconds)
    except asyncio.TimeoutError:
        reason = f"The body did not come in {limits.body_seconds:g} seconds."
        raise Refusal(408, "too_slow", reason) from None
    except ClientDisconnect:
        raise Refusal(400, "gone", "The client went away.") from None


async def _refuse(request: Request, error: Any) -> Response:
    if isinstance(error, HTTPException):
        code = error.detail.lower().replace(" ", "_")  # not_found, method_not_allowed
        error = Refusal(error.status_code, code, error.detail)
    headers = {} if error.retry_after is None else {"Retry-After": str(error.retry_after)}
    content = {"error": {"code": error.code, "message": error.message}}
    return JSONResponse(content, error.status, headers)
