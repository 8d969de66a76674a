"""SGLang behind HTTP, by its documented calls; not run here.

    python -m sglang.launch_server --model-path MODEL --enable-deterministic-inference

Weights travel through files alone, in the format of the checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from torch import Tensor

from mmrl.config import check
from mmrl.engines.engine import EngineError, Request
from mmrl.engines.http_engine import HTTPEngine
from mmrl.engines.vllm_server import sampling_options
from mmrl.engines.weight_transfer import Sender
from mmrl.generation.causal.engine_config import EngineConfig

OTHER_NAMES = {"max_tokens": "max_new_tokens", "seed": "sampling_seed"}
"""SGLang's names of options of vLLM."""


class SGLangServer(HTTPEngine):
    """See the module. Raises ConfigError: a transfer other than path."""

    READY, COMPLETE = "/get_model_info", "/generate"

    def __init__(self, config: EngineConfig, sender: Sender) -> None:
        check(config.transfer == "path", "sampler.transfer", config.transfer, "path with sglang")
        super().__init__(config, sender)

    def describe(self) -> Mapping[str, Any]:
        """What the server says of its model, which is not its `config.json`."""
        return self.ask("/get_model_info")

    def pause(self) -> None:
        self.ask("/pause_generation", {"mode": "retract"})

    def resume(self) -> None:
        self.ask("/continue_generation", {})

    def send(self, weights: Iterable[tuple[str, Tensor]]) -> None:
        self.sender.send(weights, self._load)

    def _load(self, info: Mapping[str, Any]) -> None:
        folder = str(info["path"]).rpartition("/")[0]
        said = self.ask("/update_weights_from_disk", {"model_path": folder, "flush_cache": True})
        if not said.get("success"):
            raise EngineError(f"{self} does not take the weights: {said.get('message')}")

    def _begin_update(self) -> None:
        """One call per part replaces the weights."""

    def _finish_update(self, version: int) -> None:
        self.ask("/update_weight_version", {"new_version": str(version)})

    def build_body(self, request: Request) -> dict[str, Any]:
        given = sampling_options(request)
        options = {OTHER_NAMES.get(key, key): value for key, value in given.items()}
        options["top_k"] = request.config.top_k or -1
        if request.banned:
            options["logit_bias"] = {str(token): -100.0 for token in request.banned}
        return {"input_ids": request.prompt, "sampling_params": options, "return_logprob": True}

    def read_body(self, said: Any) -> tuple[list[int], list[float]]:
        pairs = said["meta_info"]["output_token_logprobs"]
        return [pair[1] for pair in pairs], [pair[0] for pair in pairs]
