"""The protocols of reward servers, one file each, all used by one client.

    {name: clip, mode: client, url: [http://127.0.0.1:18080], token_env: MMRL_REWARD_TOKEN}
    {name: geneval, mode: client, protocol: flow_grpo, url: http://127.0.0.1:18085}

`protocol` is `mmrl` (the reward server of this project) unless an entry names another. A protocol
is a subclass of `mmrl.rewards.http.client.ClientReward` whose fields are the options of such an
entry; those of the reward itself belong to the server. A judge behind OpenAI's chat completions is
the reward `judge` (`mmrl.rewards.judge`).
"""

import importlib
from collections.abc import Mapping
from typing import Any

from mmrl.config import check_choice

PROTOCOLS: dict[str, str] = {
    "flow_grpo": "mmrl.rewards.http.protocols.flow_grpo:FlowGRPOReward",
    "mmrl": "mmrl.rewards.http.protocols.mmrl:MMRLReward",
    "unirl": "mmrl.rewards.http.protocols.unirl:UniRLReward",
}


def is_client(entry: Mapping[str, Any]) -> bool:
    """Whether an entry names a reward of a server."""
    return entry.get("mode") == "client"


def resolve_client(entry: Mapping[str, Any], where: str) -> tuple[type, dict[str, Any]]:
    """The client class of an entry with `mode: client`, and its options as they are written; the
    entry has no weight, scale, offset and key. Raises ConfigError: an unknown protocol."""
    protocol = entry.get("protocol", "mmrl")
    check_choice(f"{where}.protocol", protocol, PROTOCOLS)
    module, _, attribute = PROTOCOLS[protocol].partition(":")
    options = {key: value for key, value in entry.items() if key not in ("mode", "protocol")}
    if isinstance(options.get("url"), str):
        options["url"] = [options["url"]]
    return getattr(importlib.import_module(module), attribute), options
