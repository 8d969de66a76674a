"""Settings of engines that append tokens outside the trainer."""

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from mmrl.config import above, at_least, check
from mmrl.config.checks import is_loopback
from mmrl.generation.causal.sampler_config import AutoregressiveConfig


@dataclass(kw_only=True)
class EngineConfig(AutoregressiveConfig):
    """Tokens appended by a server, whose weights follow those of the policy."""

    url: str = ""
    """Address of the server, such as http://127.0.0.1:8000."""
    token_env: str = ""
    """Environment variable that holds the bearer token of the server; empty for none, which a
    server on this machine may do without."""
    transfer: Literal["path", "group"] = "path"
    """How weights travel: path through files in `weights_dir`, group by a broadcast (NCCL between
    GPUs, gloo otherwise) that needs no common files."""
    weights_dir: str = ""
    """Folder that trainer and engine both see, for transfer: path; empty takes /dev/shm, where it
    exists, else the folder of temporary files."""
    max_staleness: Annotated[int, at_least(0)] = 0
    """Updates between the weights that write a rollout and those that train on it: from 1 on, the
    engine writes rollouts of further steps while the trainer updates."""
    max_logp_difference: Annotated[float, above(0)] = 0.2
    """Mean difference of the log-probs of a token, by the engine and by the trainer, above which
    the run stops."""
    importance_sampling_mode: Literal[
        "sequence_mask", "token_mask", "sequence_truncate", "token_truncate", "none"
    ] = "sequence_mask"
    """How the loss is corrected for that difference, as TRL's `vllm_importance_sampling_mode`, see
    `mmrl.algorithms.importance_sampling`."""
    importance_sampling_clip_max: Annotated[float, above(0)] = 3.0
    """Largest weight of the correction (TRL: `vllm_importance_sampling_clip_max`)."""
    importance_sampling_clip_min: Annotated[float | None, at_least(0)] = None
    """Smallest weight of the correction; null for none."""
    concurrency: Annotated[int, at_least(1)] = 64
    """Simultaneous requests of each process."""
    timeout_s: Annotated[float, above(0)] = 600.0
    """Seconds for one request."""

    @property
    def connection(self) -> tuple[str, ...]:
        """What all engines of a policy have in common, as it is followed by one."""
        return tuple(str(getattr(self, key, "")) for key in CONNECTION)


CONNECTION = ("name", "mode", "url", "token_env", "transfer", "weights_dir", "engine")


@dataclass(kw_only=True)
class VLLMConfig(EngineConfig):
    """Tokens appended by vLLM, whose weights follow those of the policy."""

    mode: Literal["colocate", "server"] = "colocate"
    """Where vLLM is: colocate in the processes of the trainer, server behind `url`, where also
    `python -m mmrl.engines.server` may answer."""
    engine: dict[str, Any] = field(default_factory=dict)
    """Arguments of `vllm.LLM` for mode: colocate, such as gpu_memory_utilization."""


def check_engine(config: EngineConfig, name: str, where: str, length: int | None) -> None:
    """Refuse settings that do not go together, see `Sampler.check`."""
    served = getattr(config, "mode", "server") == "server"
    allowed = "the address of a server" if served else "empty with mode: colocate"
    check(served == bool(config.url), f"{where}.url", config.url, allowed)
    host = urlsplit(config.url).hostname or ""
    open_ = served and not is_loopback(host) and not config.token_env
    advice = "Or reach it through a tunnel: its routes let everyone replace the weights."
    allowed = "the name of an environment variable with a token, as the server is elsewhere"
    check(not open_, f"{where}.token_env", config.token_env, allowed, advice)
    allowed = "0 with mode: colocate, which samples while the trainer waits"
    check(
        served or not config.max_staleness, f"{where}.max_staleness", config.max_staleness, allowed
    )
    allowed = "none where tokens are filtered (top_k, top_p, min_p, repetition_penalty)"
    fits = not config.filters or config.importance_sampling_mode == "none"
    advice = "The trainer scores the whole distribution, so that the correction would be wrong."
    mode = config.importance_sampling_mode
    check(fits, f"{where}.importance_sampling_mode", mode, allowed, advice)
    low, high = config.importance_sampling_clip_min, config.importance_sampling_clip_max
    fits = low is None or low < high
    allowed = f"null, or below importance_sampling_clip_max, {high:g}"
    check(fits, f"{where}.importance_sampling_clip_min", low, allowed)
