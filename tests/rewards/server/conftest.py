"""The servers several files talk to."""

from collections.abc import Iterator

import pytest

from tests.rewards.server.live import Live, live

REWARDS = """rewards=[
{name: shapes}, {name: shapes, key: partial, mode: partial}, {name: moody, max_latency_ms: 30},
{name: clip, model: datasets/shapes/checkpoints/clip, device: cpu, max_latency_ms: 30}]""".replace(
    "\n", " "
)


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """Real rewards and a moody one, without a token, with the limits it has by default."""
    with live(tmp_path_factory.mktemp("server"), REWARDS) as started:
        yield started.loaded()


SMALL = {
    "max_items": 4,
    "max_bytes": 40_000,
    "max_pixels": 4096,
    "max_memory_mb": 2,
    "max_waiting": 6,
    "body_seconds": 0.5,
}


@pytest.fixture(scope="session")
def small_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """One with small limits, a token, and items that time out after two seconds."""
    limits = [f"limits.{key}={value}" for key, value in SMALL.items()]
    arguments = [
        "rewards=[{name: moody}, {name: shapes}]",
        *limits,
        "token_env=TOKEN",
        "timeout_s=2",
    ]
    folder, token = tmp_path_factory.mktemp("small"), "a-token-of-tests"
    with live(folder, *arguments, environment={"TOKEN": token}) as started:
        started.token = token
        yield started.loaded()
