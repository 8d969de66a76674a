"""vLLM in the processes of the trainer, one engine in each, on the device of the process."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from torch import Tensor

from mmrl.config import import_extra
from mmrl.engines.engine import Answer, Engine, EngineError, Request, check_answer
from mmrl.engines.vllm_server import MODE, sampling_options


class VLLMInProcess(Engine):
    """An engine of a checkpoint directory, with further arguments of `vllm.LLM`. Raises
    ConfigError: vllm is not installed. Raises EngineError: vLLM does not start."""

    def __init__(
        self, model: str, world_size: int, sleeps: bool, arguments: Mapping[str, Any]
    ) -> None:
        # in this process, where weights can be given as tensors
        os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
        self.vllm = import_extra("vllm", "vllm")
        launched = {"distributed_executor_backend": "external_launcher"} if world_size > 1 else {}
        options = {"enable_sleep_mode": True} if sleeps else {}
        given = {"logprobs_mode": MODE, **launched, **options, **arguments}
        try:
            self.llm: Any = self.vllm.LLM(model=model, **given)
        except Exception as error:  # vLLM raises what its parts raise
            raise EngineError(f"vLLM does not start on {model}: {error}") from error

    def __str__(self) -> str:
        return "vLLM in this process"

    def health(self) -> str:
        return ""

    def describe(self) -> Mapping[str, Any]:
        return self.llm.llm_engine.model_config.hf_config.to_dict()

    def pause(self) -> None:
        """Nothing is at work between two calls."""

    def resume(self) -> None:
        """See `pause`."""

    def sleep(self) -> None:
        """Leave the memory of the device to others."""
        self.llm.sleep(level=1)

    def wake(self) -> None:
        """Take it again."""
        self.llm.wake_up()

    def close(self) -> None:
        del self.llm  # before the process groups of the trainer

    def send(self, weights: Iterable[tuple[str, Tensor]]) -> None:
        # never model.load_weights, which some kernels refuse half-way
        self.llm.collective_rpc("reload_weights", kwargs={"weights_iterator": iter(weights)})

    def _begin_update(self) -> None:
        """One call replaces the weights."""

    def _finish_update(self, version: int) -> None:
        from mmrl.engines.vllm_worker import refresh_head

        self.llm.apply_model(refresh_head)
        self.llm.reset_prefix_cache()

    def _generate(self, requests: Sequence[Request], version: int) -> list[Answer]:
        prompts = [{"prompt_token_ids": each.prompt} for each in requests]
        params = [
            self.vllm.SamplingParams(
                logprobs=0,
                detokenize=False,
                logit_bias=dict.fromkeys(each.banned, -100.0) or None,
                **sampling_options(each),
            )
            for each in requests
        ]
        answers = []
        for said, request in zip(
            self.llm.generate(prompts, params, use_tqdm=False), requests, strict=True
        ):
            [written] = said.outputs
            tokens = [*written.token_ids]
            pairs = zip(tokens, written.logprobs, strict=True)
            logprobs = [found[token].logprob for token, found in pairs]
            answers.append(check_answer(tokens, logprobs, request, version))
        return answers
