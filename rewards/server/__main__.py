"""Serve rewards over HTTP.

    python -m mmrl.rewards.server config=configs/reward_server/shapes.yaml port=18080

SIGTERM and Ctrl-C stop the server: accepted requests are answered, and the exit status is 0.
"""

import logging
import os
import signal
import socket
import sys
from collections.abc import Sequence
from typing import Any

from mmrl import begin
from mmrl.config import ConfigError, load_config, to_yaml
from mmrl.config.command import Usage, run_command
from mmrl.rewards import build_reward
from mmrl.rewards.server.server_config import ServerConfig, read_token

logger = logging.getLogger("mmrl.rewards.server")
USAGE = Usage("python -m mmrl.rewards.server", __doc__, ServerConfig, "reward_server")


def serve(config: ServerConfig, token: str | None) -> None:
    """Answer requests until a signal comes.

    Raises:
        ConfigError: the packages of the extra `server` are not installed.
        OSError: the address cannot be listened on.
    """
    try:
        import uvicorn

        from mmrl.rewards.server.app import build_app
        from mmrl.rewards.server.connections import build_protocol
        from mmrl.rewards.server.log import start_log
        from mmrl.rewards.server.scoring_service import ScoringService
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"the reward server needs the package {error.name}; pip install -e '.[server]'"
        ) from error
    begin()
    service = ScoringService(config)
    family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
    listener = socket.create_server((config.host, config.port), family=family, backlog=2048)
    start_log()
    _log_start(config, listener)
    _ignore_signals()
    server = uvicorn.Server(
        uvicorn.Config(
            build_app(service, token),
            http=build_protocol(config.limits),
            ws="none",
            lifespan="on",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            # longer than clients pause between steps, so that no client uses a closing connection
            timeout_keep_alive=600,
            timeout_graceful_shutdown=int(config.timeout_s + config.limits.body_seconds) + 1,
        )
    )
    server.run(sockets=[listener])
    logger.info("stopped")
    _leave(service)


def _log_start(config: ServerConfig, listener: socket.socket) -> None:
    host = f"[{config.host}]" if ":" in config.host else config.host
    url = f"http://{host}:{listener.getsockname()[1]}"
    keys = [entry.key for entry in config.entries()]
    fields = {"url": url, "rewards": keys, "token": bool(config.token_env), "pid": os.getpid()}
    logger.info("listening", extra={"fields": fields})


def _ignore_signals() -> None:
    """Ignore signals that uvicorn, which handles them while it runs, raises again at its end."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)


def _leave(service: Any) -> None:
    """Exit at once if a reward is still loading or hangs: its thread cannot be ended, and
    destroying the interpreter under it may crash."""
    if any(served.thread.is_alive() for served in service.rewards.values()):
        logging.shutdown()
        os._exit(0)


def main(arguments: Sequence[str]) -> int:
    """Run the command; return its exit status."""

    def work() -> None:
        config = load_config(ServerConfig, arguments)
        token = read_token(config, os.environ)
        if not config.dry_run:
            return serve(config, token)
        for entry in config.entries():
            build_reward(entry.options, entry.key)
        sys.stdout.write(to_yaml(config))

    return run_command(USAGE, arguments, work)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
