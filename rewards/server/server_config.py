"""Settings of the reward server: the rewards it serves, its address and its limits."""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Annotated, Any, ClassVar

from mmrl.config import ConfigError, Settings, above, at_least, check, merge
from mmrl.config.by_name import source_of
from mmrl.config.checks import is_loopback
from mmrl.rewards import check_reward, reward_class
from mmrl.rewards.http.protocols import is_client
from mmrl.rewards.judging.policy_query import asks_policy
from mmrl.rewards.registry.lookup import is_own
from mmrl.rewards.scoring.terms import key_of

REQUEST_COPIES = 3
"""Memory of a request while it is read, in multiples of its body: body, its text, its images."""
PIXEL_BYTES = 4
"""Memory of a decoded pixel; Pillow keeps RGB in four bytes."""


@dataclass(kw_only=True)
class Limits(Settings):
    """Limits of one request, and of all together. Requests beyond them are refused."""

    where: ClassVar[str] = "limits"

    max_items: Annotated[int, above(0)] = 256
    """Items of a request."""
    max_bytes: Annotated[int, above(0)] = 2**26
    """Bytes of a request's body."""
    max_pixels: Annotated[int, at_least(1, up_to=2**26)] = 2**22
    """Pixels of an image or frame; above 2**26 Pillow itself refuses."""
    max_frames: Annotated[int, above(0)] = 256
    """Frames of a video."""
    max_memory_mb: Annotated[int, above(0)] = 2048
    """Mebibytes of all open requests: three times a body while it is read, four bytes per decoded
    pixel, of videos eight."""
    max_waiting: Annotated[int, above(0)] = 4096
    """Waiting items of one reward."""
    body_seconds: Annotated[float, above(0)] = 30.0
    """Seconds for sending a body."""
    max_connections: Annotated[int, above(0)] = 4096
    """Simultaneous connections; requests on further ones are answered with 503."""

    def __post_init__(self) -> None:
        super().__post_init__()
        needed = REQUEST_COPIES * self.max_bytes + PIXEL_BYTES * self.max_pixels
        least = {"max_waiting": self.max_items, "max_memory_mb": -(-needed // 2**20)}
        for key, value in least.items():
            allowed = f"at least {value}, for one request within the other limits"
            check(getattr(self, key) >= value, f"limits.{key}", getattr(self, key), allowed)


@dataclass(kw_only=True)
class ServedEntry:
    """One reward to be served, checked and not loaded: its options, and how it is served."""

    key: str = ""
    """Name clients call it by; empty for the name of the reward."""
    max_batch_size: Annotated[int, at_least(1)] = 32
    """Items of different requests that are scored in one call."""
    max_latency_ms: Annotated[float, at_least(0, up_to=60_000)] = 5.0
    """How long the first item of a batch waits for others."""
    options: dict[str, Any] = field(default_factory=dict)
    """Name and options of the reward with its defaults; no key of an entry."""

    @property
    def version(self) -> str:
        """What clients record. It depends on options and the user's own code, not on the device."""
        content = {key: value for key, value in self.options.items() if key != "device"}
        text = json.dumps(content, sort_keys=True, default=str)
        source = source_of(reward_class(content["name"])) if is_own(content) else b""
        digest = hashlib.sha256(text.encode() + source).hexdigest()[:12]
        return f"{key_of({'name': content['name']})}-{digest}"


@dataclass(kw_only=True)
class AddressConfig(Settings):
    """Where a server listens, and who may use it."""

    host: str = "127.0.0.1"
    """Address to listen on; others than loopback need a token."""
    port: Annotated[int, at_least(0, up_to=65535)] = 18080
    """Port to listen on; 0 takes a free one, which the log names."""
    token_env: str = ""
    """Environment variable that holds the bearer token; empty for none."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check(
            is_loopback(self.host) or bool(self.token_env),
            "token_env",
            self.token_env,
            f"the name of an environment variable with a token, because host is {self.host!r}",
            "Name one, or set host to 127.0.0.1, which this machine alone can reach.",
        )


@dataclass(kw_only=True)
class ServerConfig(AddressConfig):
    """Settings of `python -m mmrl.rewards.server`."""

    rewards: list[dict[str, Any]] = field(
        default_factory=list, metadata={"holds": "mmrl.rewards:REWARDS"}
    )
    """One entry per reward: its name, its options, and those of `ServedEntry`."""
    timeout_s: Annotated[float, above(0)] = 300.0
    """Seconds after which items without a score are answered with an error."""
    limits: Limits = field(default_factory=Limits)
    """Limits of one request, and of all together."""
    dry_run: bool = False
    """Load the rewards, print the settings, and exit."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.entries()

    def entries(self) -> list[ServedEntry]:
        """The rewards, checked. Raises ConfigError: none, an unknown one, a wrong option, or two
        with one key."""
        if not self.rewards:
            raise ConfigError("rewards is empty; name one, such as {name: shapes}.")
        entries = [_entry(entry, f"rewards[{n}]") for n, entry in enumerate(self.rewards)]
        for n, key in enumerate(keys := [entry.key for entry in entries]):
            check(key not in keys[:n], f"rewards[{n}].key", key, "another than those before it")
        return entries


def _entry(entry: Mapping[str, Any], where: str) -> ServedEntry:
    for key in ("weight", "scale", "offset", "frames", "mode"):
        if key in entry and (key != "mode" or is_client(entry)):
            raise ConfigError(
                f"{where}.{key} is {entry[key]!r}, but a server computes and answers raw scores;"
                f" set {key} in the configuration of the run."
            )
    names = {each.name for each in fields(ServedEntry)} - {"options"}
    served = merge(ServedEntry, {k: v for k, v in entry.items() if k in names}, where=where)
    rest = {key: value for key, value in entry.items() if key not in names}
    options = check_reward(rest, where)
    check(
        not asks_policy(entry["name"]),
        f"{where}.name",
        entry["name"],
        "a reward that asks no policy, because a server has none",
        "Name it among the rewards of the run.",
    )
    is_key = re.fullmatch(r"[\w.-]{0,64}", served.key, re.ASCII) is not None
    allowed = "at most 64 letters, digits, points, dashes and underscores"
    check(is_key, f"{where}.key", served.key, allowed)
    served.key = served.key or key_of({"name": entry["name"]})
    served.options = {"name": entry["name"], **options}
    return served
