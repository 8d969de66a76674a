"""The HTTP side of `python -m mmrl.engines.server`: vLLM's paths, and whose turn it is."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request as HTTPRequest
from starlette.responses import JSONResponse
from starlette.routing import Route

from mmrl.engines.engine import Request
from mmrl.engines.served_policy import ServedPolicy
from mmrl.generation.causal.sampler_config import AutoregressiveConfig
from mmrl.rewards.server.app import demand_token

logger = logging.getLogger("mmrl.engines.server")
TOGETHER = 0.005
"""Seconds in which further requests join the first of a batch."""


class Calls:
    """The calls of vLLM. Each gets the JSON of a request and returns that of its answer; a batch of
    requests or an update has its turn, from a pause to the next `resume` the latter."""

    def __init__(self, served: ServedPolicy) -> None:
        self.served, self.turn = served, asyncio.Lock()
        self.waiting: list[tuple[Request, asyncio.Future[Any]]] = []
        self.come, self.paused = asyncio.Event(), False

    async def complete(self, body: Any) -> Any:
        """`/v1/completions` of one prompt of token ids."""
        future = asyncio.get_running_loop().create_future()
        self.waiting.append((read_request(body), future))
        self.come.set()
        answer = await future
        if isinstance(answer, Exception):
            raise answer
        return {"choices": [answer]}

    async def work(self) -> None:
        """Write what waits, all of it at a time."""
        while True:
            await self.come.wait()
            await asyncio.sleep(TOGETHER)
            async with self.turn:
                self.come.clear()
                some, self.waiting = self.waiting, []
                answers: Sequence[Any]
                try:
                    answers = await asyncio.to_thread(self.served.write, [r for r, _ in some])
                except Exception as error:  # an answer to those who asked; the engine goes on
                    logger.exception("a batch failed")
                    answers = [RuntimeError(f"the batch failed: {error}")] * len(some)
            for (_, future), answer in zip(some, answers, strict=True):
                if not future.done():  # whoever asked may have gone
                    future.set_result(answer)

    async def pause(self, body: Any) -> Any:
        """Wait for the requests at work, and keep others."""
        if not self.paused:  # by a trainer that has ended since, for instance
            await self.turn.acquire()
            self.paused = True

    async def resume(self, body: Any) -> Any:
        """End a pause."""
        if self.paused:
            self.paused = False
            self.turn.release()

    async def meet(self, body: Any) -> Any:
        """Join the trainer's group."""
        await asyncio.to_thread(self.served.receiver.meet, body["init_info"])

    async def start(self, body: Any) -> Any:
        """Begin an update; without its end nothing is written any more."""
        self.served.updating = True

    async def update(self, body: Any) -> Any:
        """Replace some weights."""
        await asyncio.to_thread(self.served.update, body["update_info"])

    async def finish(self, body: Any) -> Any:
        """End an update."""
        self.served.version, self.served.updating = str(body["weight_version"]), False

    async def describe(self, body: Any) -> Any:
        """`/collective_rpc` of `describe_model`."""
        return {"results": [self.served.describe()]}

    async def agree(self, body: Any) -> Any:
        """There is nothing to do: no cache outlives a batch."""
        return {"success": True}


def read_request(body: Any) -> Request:
    """A request of `/v1/completions`. Raises KeyError, TypeError, ValueError: it is none."""
    drawn = ("temperature", "top_p", "min_p", "repetition_penalty")
    options = {key: float(body[key]) for key in drawn}
    config = AutoregressiveConfig(top_k=max(0, int(body["top_k"])), **options)
    prompt = [int(token) for token in body["prompt"]]
    stops = tuple(int(token) for token in body["stop_token_ids"])
    banned = tuple(int(token) for token in body.get("logit_bias") or ())
    return Request(prompt, int(body["seed"]), int(body["max_tokens"]), stops, banned, config)


def build_app(served: ServedPolicy, token: str) -> Any:
    """The application; an empty token is none."""
    calls = Calls(served)
    posts = {
        "/v1/completions": calls.complete,
        "/pause": calls.pause,
        "/resume": calls.resume,
        "/init_weight_transfer_engine": calls.meet,
        "/start_weight_update": calls.start,
        "/update_weights": calls.update,
        "/finish_weight_update": calls.finish,
        "/collective_rpc": calls.describe,
        "/reset_prefix_cache": calls.agree,
    }
    gets: dict[str, Callable[[HTTPRequest], JSONResponse]] = {
        "/v1/models": lambda _: JSONResponse({"data": [{"id": "policy"}]}),
        "/weight_info": lambda _: JSONResponse({"weight_version": served.version}),
        "/get_world_size": lambda _: JSONResponse({"world_size": 1}),
    }

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        working = asyncio.create_task(calls.work())
        yield
        working.cancel()

    routes = [Route(path, _answer(call), methods=["POST"]) for path, call in posts.items()]
    routes += [Route(path, call) for path, call in gets.items()]
    app = Starlette(routes=routes, lifespan=lifespan)
    return demand_token(token, app) if token else app


def _answer(call: Callable[[Any], Awaitable[Any]]) -> Callable[[HTTPRequest], Awaitable[Any]]:
    """A call as a handler; what is wrong with a request is answered with status 400."""

    async def handle(request: HTTPRequest) -> JSONResponse:
        try:
            found = await call(json.loads(await request.body() or b"{}"))
        except (KeyError, TypeError, ValueError, RuntimeError, OSError) as error:
            return JSONResponse({"error": f"{type(error).__name__}: {error}"}, 400)
        return JSONResponse({} if found is None else found)

    return handle
