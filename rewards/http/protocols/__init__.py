"""The protocols of reward servers, one file each, all used by one client.

    {name: clip, mode: client, url: [http://127.0.0.1:18080], token_env: MMRL_REWARD_TOKEN}
    {name: geneval, mode: client, protocol: flow_grpo, url: http://127.0.0.1:18085}

`protocol` is `mmrl` (the reward server of this project) unless an entry names another. A protocol
is a subclass of `mmrl.rewards.http.client.ClientReward` whose fields are the options of such an
entry. `openai` is the reward `judge` (`mmrl.rewards.judge`) with all its options.
"""

import importlib
import inspect
from collections.abc import Mapping
from typing import Any

from mmrl.config import ConfigError, check_choice

PROTOCOLS: dict[str, str] = {
    "flow_grpo": "mmrl.rewards.http.protocols.flow_grpo:FlowGRPOReward",
    "mmrl": "mmrl.rewards.http.protocols.mmrl:MMRLReward",
    "openai": "mmrl.rewards.judge:JudgeReward",
    "unirl": "mmrl.rewards.http.protocols.unirl:UniRLReward",
}
JUDGE_KEYS = {"name": "model", "url": "urls", "token_env": "api_key_env"}
"""Keys of `openai`, and what the judge calls them; `model`, if it is given, goes before `name`."""


def is_client(entry: Mapping[str, Any]) -> bool:
    """Whether an entry names a reward of a server."""
    return entry.get("mode") == "client"


def resolve_client(
    entry: Mapping[str, Any], local: type | None, where: str
) -> tuple[type, dict[str, Any]]:
    """Find the client class of an entry, and its options as they are written.

    Args:
        entry: with `mode: client`; without weight, scale, offset and key.
        local: the reward of the same name in this project, if there is one.
        where: dotted key of the entry, for messages.

    Raises:
        ConfigError: an unknown protocol, or an option that only the server can take.
    """
    protocol = entry.get("protocol", "mmrl")
    check_choice(f"{where}.protocol", protocol, PROTOCOLS)
    module, _, attribute = PROTOCOLS[protocol].partition(":")
    cls = getattr(importlib.import_module(module), attribute)
    options = {key: value for key, value in entry.items() if key not in ("mode", "protocol")}
    if isinstance(options.get("url"), str):
        options["url"] = [options["url"]]
    if protocol == "openai":
        return cls, {JUDGE_KEYS.get(key, key): value for key, value in options.items()}
    own = inspect.signature(local).parameters if local is not None else {}
    for key in options.keys() & own.keys() - inspect.signature(cls).parameters.keys():
        raise ConfigError(
            f"{where}.{key} is {options[key]!r}, an option of the reward {entry['name']!r} itself,"
            " and with mode: client that belongs to the server; set it in the configuration of the"
            " server, or leave out mode: client."
        )
    return cls, options
