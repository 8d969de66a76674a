"""A vLLM engine in its process: requests of chat completions in, texts out, as JSON lines.

It is run by path, with the devices it may use in its environment (`mmrl.rewards.judging.offline`).
The first line of its input says how the engine is built and which further fields requests have;
each further line is a batch. What vLLM
prints goes to the error stream.
"""

import contextlib
import importlib
import json
import os
import sys
from collections.abc import Sequence
from typing import Any

OF_CHAT = ("chat_template_kwargs", "mm_processor_kwargs")
"""Fields of a request that are arguments of `LLM.chat`."""
NOT_SAMPLED = ("model", "messages", "response_format", *OF_CHAT)
"""Fields that are no sampling parameters."""


def main() -> None:
    """Build the engine, say so, and answer batches until the input ends."""
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    vllm: Any = importlib.import_module("vllm")
    settings = json.loads(sys.stdin.readline())
    try:
        read_sampling(settings["extra_body"])
    except refusals() as error:
        return _write(replies, {"id": None, "refused": str(error)})
    engine = vllm.LLM(**settings["engine"])
    _write(replies, {"id": None})
    for line in sys.stdin:
        batch = json.loads(line)
        _write(replies, {"id": batch["id"], "replies": answer(engine, batch["requests"])})


def refusals() -> tuple[type[Exception], ...]:
    """What vLLM raises for a request that it does not take; early releases have no such class."""
    with contextlib.suppress(ImportError, AttributeError):
        return (ValueError, TypeError, importlib.import_module("vllm.exceptions").VLLMClientError)
    return (ValueError, TypeError)


def answer(engine: Any, requests: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The `text` or the `error` of each request. A request that vLLM refuses, such as one that is
    too long, fails the batch there; then each is asked alone."""
    try:
        return _chat(engine, requests)
    except refusals() as error:
        if len(requests) == 1:
            return [{"error": f"{type(error).__name__}: {error}"}]
    return [answer(engine, [request])[0] for request in requests]


def _chat(engine: Any, requests: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    # of the configuration, so all requests have the same
    further = {key: requests[0][key] for key in OF_CHAT if key in requests[0]}
    outputs = engine.chat(
        [request["messages"] for request in requests],
        sampling_params=[read_sampling(request) for request in requests],
        use_tqdm=False,
        **further,
    )
    written = [output.outputs[0] for output in outputs]
    return [{"text": each.text, "cut": each.finish_reason == "length"} for each in written]


def read_sampling(request: dict[str, Any]) -> Any:
    """vLLM's sampling parameters of a request."""
    vllm: Any = importlib.import_module("vllm.sampling_params")
    fields = {key: value for key, value in request.items() if key not in NOT_SAMPLED}
    form = request.get("response_format")
    if form is not None:
        schema = form["json_schema"]["schema"]
        fields["structured_outputs"] = vllm.StructuredOutputsParams(json=schema)
    return vllm.SamplingParams(**fields)


def _write(stream: Any, content: dict[str, Any]) -> None:
    print(json.dumps(content), file=stream, flush=True)


if __name__ == "__main__":
    main()
