"""Serve rewards over HTTP.

    python -m mmrl.rewards.server config=configs/reward_server/shapes.yaml port=18080

SIGTERM and Ctrl-C stop the server: accepted requests are answered, and the exit status is 0.
"""

import logging
import os
import resource
import signal
import socket
import sys
from collections.abc import Sequence

from mmrl import begin
from mmrl.config import import_extra, load_config, to_yaml
from mmrl.config.command import Usage, run_command
from mmrl.rewards import build_reward
from mmrl.rewards.http import read_token
from mmrl.rewards.server.server_config import ServerConfig

logger = logging.getLogger("mmrl.rewards.server")
LOG = "%(asctime)s %(levelname)s %(name)s: %(message)s"
USAGE = Usage("python -m mmrl.rewards.server", __doc__, ServerConfig, "reward_server")


def serve(config: ServerConfig, token: str) -> None:
    """Answer requests until a signal comes. Raises ConfigError: the packages of the extra `server`
    are not installed. Raises OSError: the address cannot be listened on."""
    uvicorn = import_extra("uvicorn", "server")
    from mmrl.rewards.server.app import build_app
    from mmrl.rewards.server.scoring_service import ScoringService

    begin()
    service = ScoringService(config)
    family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
    listener = socket.create_server((config.host, config.port), family=family, backlog=2048)
    logging.basicConfig(level=logging.WARNING, format=LOG, force=True)
    logging.getLogger("mmrl.rewards.server").setLevel(logging.INFO)
    logging.getLogger("uvicorn.access").setLevel(logging.INFO)
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)  # it warns of every bad request
    logging.captureWarnings(True)
    host = f"[{config.host}]" if ":" in config.host else config.host
    port, names = listener.getsockname()[1], ", ".join(service.rewards)
    logger.info("listening at http://%s:%d, process %d: %s", host, port, os.getpid(), names)
    for number in (signal.SIGINT, signal.SIGTERM):  # uvicorn raises them again at its end
        signal.signal(number, lambda *_: None)
    _, files = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
    server = uvicorn.Server(
        uvicorn.Config(
            build_app(service, token),
            http="h11",
            ws="none",
            lifespan="on",
            log_config=None,
            server_header=False,
            proxy_headers=False,
            # some descriptors are for images, models and the log
            limit_concurrency=min(config.limits.max_connections, files - 128),
            # longer than clients pause between steps, so that no client uses a closing connection
            timeout_keep_alive=600,
            timeout_graceful_shutdown=int(config.timeout_s + config.limits.body_seconds) + 1,
        )
    )
    server.run(sockets=[listener])
    logger.info("stopped")
    if any(each.running and not each.running.done() for each in service.rewards.values()):
        logging.shutdown()
        os._exit(0)  # the thread of a reward that loads or hangs cannot be ended


def main(arguments: Sequence[str]) -> int:
    """Run the command; return its exit status."""

    def work() -> None:
        config = load_config(ServerConfig, arguments)
        token = read_token(config.token_env, "token_env")
        if not config.dry_run:
            return serve(config, token)
        for entry in config.entries():
            build_reward(entry.options, entry.key)
        sys.stdout.write(to_yaml(config))

    return run_command(USAGE, arguments, work)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
