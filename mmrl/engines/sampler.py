"""Rollouts that an engine writes, as `mmrl.samplers` asks for them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import torch
from torch import Generator, Tensor

from mmrl.config import ConfigError
from mmrl.config.checks import is_loopback
from mmrl.engines.engine import Engine, EngineError, Request
from mmrl.engines.following import FollowingEngine
from mmrl.engines.sglang_server import SGLangServer
from mmrl.engines.vllm_in_process import VLLMInProcess
from mmrl.engines.vllm_server import VLLMServer
from mmrl.engines.weight_transfer import FileSender, GroupSender, Sender, own_address
from mmrl.generation.causal.canvas import CausalCanvas
from mmrl.generation.causal.engine_config import EngineConfig
from mmrl.generation.causal.sampler import finish_rollout
from mmrl.generation.tokens.noise import row_seeds
from mmrl.runtime.launch import count_processes
from mmrl.types import Rollout

if TYPE_CHECKING:
    from mmrl.models import Policy

Weights = Callable[[bool], Iterable[tuple[str, Tensor]]]


def open_engine(policy: Policy, config: Any, sleeps: bool = False) -> Engine:
    """The engine of a sampler's settings, for the checkpoint that a policy was loaded from; whether
    it `sleeps` between rollouts. Raises EngineError: it does not start."""
    if getattr(config, "mode", "") == "colocate":
        source, parameter = policy.network.source, next(policy.network.parameters())
        dtype = str(parameter.dtype).removeprefix("torch.")
        arguments = {"dtype": dtype, **config.engine}
        return VLLMInProcess(str(source.directory), count_processes(), sleeps, arguments)
    return SERVERS[config.name](config, choose_sender(config, policy.device))


SERVERS: dict[str, Callable[[EngineConfig, Sender], Engine]] = {
    "vllm": VLLMServer,
    "sglang": SGLangServer,
}
"""Engines behind an address, by the name of their sampler."""
COMPARED = (
    *("model_type", "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers"),
    *("num_attention_heads", "num_key_value_heads", "tie_word_embeddings"),
)
"""What must be the same in the `config.json` of engine and policy."""


def choose_sender(config: EngineConfig, device: torch.device) -> Sender:
    """What sends weights by `config.transfer`."""
    if config.transfer == "path":
        return FileSender(config.weights_dir)
    host = urlsplit(config.url).hostname or ""
    return GroupSender("127.0.0.1" if is_loopback(host) else own_address(host), device)


def check_server(sampler: Any, config: Mapping[str, Any]) -> None:
    """Ask the server of a sampler's settings, if it has one, whether it answers and has the model
    of this `config.json`; nothing is loaded. Raises EngineError: it does not, or has another."""
    if not sampler.url:
        return
    engine = SERVERS[sampler.name](sampler, FileSender())
    if problem := engine.health():
        raise EngineError(f"{engine} cannot be used: {problem}")
    found = engine.describe()
    for key in COMPARED:
        if key in config and key in found and config[key] != found[key]:
            raise EngineError(
                f"{engine} has another model: its {key} is {found[key]!r}, and that of the policy"
                f" {config[key]!r}. Start it with the checkpoint of the run."
            )


def connect(
    policy: Policy,
    config: Any,
    weights: Weights | None = None,
    sends: bool = True,
    sleeps: bool = False,
) -> FollowingEngine:
    """Let an engine follow a policy, see `FollowingEngine`."""
    engine = open_engine(policy, config, sleeps)
    policy.engine = FollowingEngine(engine, policy, config, weights, sends)
    return policy.engine


def follow(policy: Policy, config: Any) -> None:
    """See `Sampler.prepare`. Outside a run the engine has the checkpoint it was started with."""
    (policy.engine or connect(policy, config)).follow()


def write(
    policy: Policy,
    canvas: CausalCanvas,
    config: Any,
    generator: Generator | Sequence[Generator],
    *_: Any,
) -> Rollout:
    """Write the responses of a canvas; see `mmrl.samplers.sample`. Raises EngineError: see
    `Engine.generate`."""
    engine = policy.engine or connect(policy, config)
    seeds = row_seeds(generator, len(canvas))
    rollout = canvas.begin(config, seeds)  # without a forward pass of this process
    answers = engine.generate(build_requests(canvas, config, seeds))
    first = canvas.first_column
    low, high = canvas.columns
    for row, answer in enumerate(answers):
        if wrong := [token for token in answer.tokens if not low <= token < high]:
            raise EngineError(
                f"{engine} wrote the token {wrong[0]}, beyond the vocabulary [{low}, {high})"
            )
        place = row, slice(first, first + len(answer.tokens))
        rollout.canvas.tokens[place] = torch.tensor(answer.tokens, device=canvas.tokens.device)
        rollout.logprobs[place] = torch.tensor(answer.logprobs, device=canvas.tokens.device)
        rollout.trace[place] = torch.arange(len(answer.tokens), device=canvas.tokens.device)
    versions = [answer.version for answer in answers]
    rollout.versions = torch.tensor(versions, device=canvas.tokens.device)
    return finish_rollout(rollout)


def build_requests(canvas: CausalCanvas, config: Any, seeds: Sequence[int]) -> list[Request]:
    """What an engine is asked for each row. Raises ConfigError: prompts with images."""
    if canvas.features is not None:
        raise ConfigError(
            f"sampler.name is {config.name!r}, and the prompts have images, which do not travel to"
            " an engine yet. Use autoregressive."
        )
    first, length = canvas.first_column, canvas.tokens.shape[1]
    rows = canvas.tokens[:, :first].tolist()
    padded = [0] * len(rows)
    if canvas.attend is not None:
        padded = (~canvas.attend[:, :first]).sum(1).tolist()
    rest = length - first, canvas.stop_ids, canvas.banned, config
    given = zip(rows, padded, seeds, strict=True)
    return [Request(row[left:], seed, *rest) for row, left, seed in given]
