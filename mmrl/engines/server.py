"""A small engine over transformers that answers the calls of vLLM.

    python -m mmrl.engines.server config=configs/engine/qwen3.yaml port=8000

It writes what the sampler of this package writes, so that a run with it is the run without it. It
shows what an engine has to do, and takes vLLM's place where that is not installed; requests that
wait are written together, without paging of keys and values.
"""

from __future__ import annotations

import logging
import os
import socket
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from mmrl import begin
from mmrl.config import at_least, check, import_extra, load_config
from mmrl.config.command import Usage, run_command
from mmrl.rewards.http import read_token
from mmrl.rewards.server.server_config import AddressConfig

logger = logging.getLogger("mmrl.engines.server")


@dataclass(kw_only=True)
class EngineServerConfig(AddressConfig):
    """Settings of `python -m mmrl.engines.server`."""

    model: str = ""
    """Directory or hub id of a checkpoint whose kind of generation is causal."""
    dtype: str = "float32"
    """Of the weights."""
    device: str = "auto"
    """Where it computes; auto takes an accelerator where there is one."""
    port: Annotated[int, at_least(0, up_to=65535)] = 8000

    def __post_init__(self) -> None:
        super().__post_init__()
        check(bool(self.model), "model", self.model, "a directory or a hub id")


USAGE = Usage("python -m mmrl.engines.server", __doc__, EngineServerConfig, "engine")


def serve(config: EngineServerConfig, token: str) -> None:
    """Answer requests until a signal comes. Raises ConfigError: the packages of the extra `server`
    are not installed. Raises OSError: the address cannot be listened on."""
    uvicorn = import_extra("uvicorn", "server")
    from mmrl.engines.served_policy import ServedPolicy
    from mmrl.engines.server_app import build_app

    begin()
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    app = build_app(ServedPolicy(config.model, config.dtype, config.device), token)
    family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
    listener = socket.create_server((config.host, config.port), family=family, backlog=2048)
    port = listener.getsockname()[1]
    logger.info("listening at http://%s:%d, process %d", config.host, port, os.getpid())
    # clients pause between steps, and none should use a closing connection
    options: Any = {"log_level": "warning", "access_log": False, "timeout_keep_alive": 600}
    uvicorn.Server(uvicorn.Config(app, **options)).run(sockets=[listener])


def main(arguments: Sequence[str]) -> int:
    """Run the command; return its exit status."""

    def work() -> None:
        config = load_config(EngineServerConfig, arguments)
        serve(config, read_token(config.token_env, "token_env"))

    return run_command(USAGE, arguments, work)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
