"""vLLM behind HTTP, or what answers the same calls, as `python -m mmrl.engines.server` does.

    VLLM_SERVER_DEV_MODE=1 vllm serve MODEL --logprobs-mode processed_logprobs \\
        --worker-extension-cls mmrl.engines.vllm_worker.Worker \\
        --weight-transfer-config '{"backend": "mmrl"}'
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from torch import Tensor

from mmrl.config import ConfigError
from mmrl.engines.engine import Answer, Engine, EngineError, Request
from mmrl.engines.weight_transfer import Sender
from mmrl.generation.causal.engine_config import EngineConfig
from mmrl.rewards.http import read_token
from mmrl.rewards.http.service import Refused, Service, Unreachable

MODE = "processed_logprobs"
START = (
    "Start it with VLLM_SERVER_DEV_MODE=1 and --worker-extension-cls"
    ' mmrl.engines.vllm_worker.Worker --weight-transfer-config \'{"backend": "mmrl"}\'.'
)


def open_service(config: EngineConfig) -> Service:
    """The address of a server. Raises ConfigError: a URL that is not valid, or no token in the
    variable."""
    secret = read_token(config.token_env, "sampler.token_env")
    try:
        return Service([config.url], secret, config.concurrency, config.timeout_s)
    except ValueError as error:
        raise ConfigError(f"sampler.url: {error}") from error


class HTTPEngine(Engine):
    """An engine behind an address."""

    def __init__(self, config: EngineConfig, sender: Sender) -> None:
        self.config, self.sender, self.service = config, sender, open_service(config)

    def __str__(self) -> str:
        return f"the engine at {self.config.url}"

    def close(self) -> None:
        """The server is another's."""

    def ask(self, path: str, content: Any = None) -> Any:
        """The JSON that is answered to JSON, or to GET without content. Raises EngineError."""
        return self.ask_all(path, [content])[0]

    def ask_all(self, path: str, contents: Sequence[Any]) -> list[Any]:
        """The same of several at a time, in order."""
        try:
            return self.service.ask_all(path, contents)
        except (Unreachable, Refused) as error:
            raise EngineError(f"{self} does not answer as it must: {error}") from error


class VLLMServer(HTTPEngine):
    """See the module."""

    def health(self) -> str:
        return self.service.why_not_ready("/v1/models", _problem, str(self))

    def describe(self) -> Mapping[str, Any]:
        """See `Engine.describe`. Raises EngineError: weights cannot be sent to it, or its log-probs
        are not those with which tokens are drawn."""
        try:
            found = self.ask("/collective_rpc", {"method": "describe_model"})["results"][0]
            mode, config = found["logprobs_mode"], found["config"]
        except EngineError as error:
            raise EngineError(f"{error}. {START}") from error
        except (KeyError, IndexError, TypeError) as error:
            raise EngineError(f"{self} does not say what it has. {START}") from error
        if mode != MODE:
            raise EngineError(f"{self} has --logprobs-mode {mode}; start it with {MODE}")
        return config

    def pause(self) -> None:
        self.ask("/pause?mode=wait", {})

    def resume(self) -> None:
        self.ask("/resume", {})

    def sleep(self) -> None:
        self.ask("/sleep?level=1", {})

    def wake(self) -> None:
        self.ask("/wake_up", {})

    def send(self, weights: Iterable[tuple[str, Tensor]]) -> None:
        self.sender.send(weights, lambda info: self.ask("/update_weights", {"update_info": info}))

    def _begin_update(self) -> None:
        workers = int(self.ask("/get_world_size")["world_size"])
        meet = "/init_weight_transfer_engine"
        self.sender.open(lambda info: self.ask(meet, {"init_info": info}), workers)
        try:
            self.ask("/start_weight_update", {})
        except EngineError:  # one that was interrupted may still be open
            self.ask("/finish_weight_update", {"weight_version": "incomplete"})
            self.ask("/start_weight_update", {})

    def _finish_update(self, version: int) -> None:
        self.ask("/finish_weight_update", {"weight_version": str(version)})
        if not self.ask("/reset_prefix_cache", {}).get("success", True):
            raise EngineError(f"{self} keeps keys and values of its former weights")
        found = self.ask("/weight_info").get("weight_version")
        if found != str(version):
            raise EngineError(f"{self} has weights of version {found!r}, and not {version}")

    def _generate(self, requests: Sequence[Request], version: int) -> list[Answer]:
        said = self.ask_all("/v1/completions", [_body(each) for each in requests])
        return [
            read_answer(self, each, request, version)
            for each, request in zip(said, requests, strict=True)
        ]


def _problem(said: Any) -> str:
    return str(said) if isinstance(said, Refused) else ""


def _body(request: Request) -> dict[str, Any]:
    """A request as vLLM's `/v1/completions` takes it."""
    return {
        "prompt": request.prompt,
        "logprobs": 0,
        "return_token_ids": True,
        "add_special_tokens": False,
        "logit_bias": {str(token): -100.0 for token in request.banned} or None,
        **sampling_options(request),
    }


def sampling_options(request: Request) -> dict[str, Any]:
    """Those options that vLLM has under the same names in a request and in `SamplingParams`."""
    config = request.config
    return {
        "max_tokens": request.max_tokens,
        "seed": request.seed,
        "temperature": config.temperature,
        "top_k": config.top_k,
        "top_p": config.top_p,
        "min_p": config.min_p,
        "repetition_penalty": config.repetition_penalty,
        "stop_token_ids": [*request.stop_ids],
        "ignore_eos": True,  # those ids alone end a text
        "skip_special_tokens": False,
    }


def read_answer(engine: Engine, said: Any, request: Request, version: int) -> Answer:
    """An answer of `/v1/completions`. Raises EngineError: it is none."""
    try:
        [choice] = said["choices"]
        tokens, logprobs = choice["token_ids"], choice["logprobs"]["token_logprobs"]
        return check_answer(engine, tokens, logprobs, request, version)
    except (KeyError, TypeError, ValueError) as error:
        raise EngineError(f"{engine} answered without tokens or log-probs ({error!r})") from error


def check_answer(
    engine: Engine, tokens: list[int], logprobs: list[float], request: Request, version: int
) -> Answer:
    """An answer, with the log-probs of a sampler that draws. Raises ValueError, TypeError: what is
    no text of the request."""
    if not 0 < len(tokens) <= request.max_tokens or len(logprobs) != len(tokens):
        raise ValueError(f"{len(tokens)} tokens and {len(logprobs)} log-probs")
    if not all(isinstance(token, int) and token >= 0 for token in tokens):
        raise ValueError("a token that is no id")
    if not all(math.isfinite(value) for value in logprobs):
        raise ValueError("a log-prob that is not finite")
    greedy = request.config.temperature == 0
    return Answer(tokens, [0.0] * len(tokens) if greedy else logprobs, version)
