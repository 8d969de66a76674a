"""vLLM behind HTTP, or what answers the same calls, as `python -m mmrl.engines.server` does.

    VLLM_SERVER_DEV_MODE=1 vllm serve MODEL --logprobs-mode processed_logprobs \\
        --worker-extension-cls mmrl.engines.vllm_worker.Worker \\
        --weight-transfer-config '{"backend": "mmrl"}'
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from torch import Tensor

from mmrl.engines.engine import EngineError, Request
from mmrl.engines.http_engine import HTTPEngine

MODE = "processed_logprobs"
START = (
    "Start it with VLLM_SERVER_DEV_MODE=1 and --worker-extension-cls"
    ' mmrl.engines.vllm_worker.Worker --weight-transfer-config \'{"backend": "mmrl"}\'.'
)


class VLLMServer(HTTPEngine):
    """See the module."""

    READY, COMPLETE = "/v1/models", "/v1/completions"

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

    def build_body(self, request: Request) -> dict[str, Any]:
        return {
            "prompt": request.prompt,
            "logprobs": 0,
            "return_token_ids": True,
            "add_special_tokens": False,
            "logit_bias": {str(token): -100.0 for token in request.banned} or None,
            **sampling_options(request),
        }

    def read_body(self, said: Any) -> tuple[list[int], list[float]]:
        [choice] = said["choices"]
        return choice["token_ids"], choice["logprobs"]["token_logprobs"]


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
