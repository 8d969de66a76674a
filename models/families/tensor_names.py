"""Names of tensors: those of the core, and those of the public checkpoint of its family."""

from collections.abc import Collection, Iterable, Mapping

from mmrl.models.families import get_family
from mmrl.models.network.network import Network
from mmrl.models.source import LORA


def names_of(network: Network) -> dict[str, str]:
    """Core tensor name -> public tensor name of a network; without what peft's layers and weights
    of 4 bits add to its own tensors."""
    own = (n for n in network.state_dict() if LORA not in n and ".weight." not in n)
    core = (name.replace(".base_layer.", ".") for name in own)
    return public_names(core, network.tied, get_family(network.public_config).KEYS)


def public_names(
    names: Iterable[str], tied: Collection[str], keys: Mapping[str, str]
) -> dict[str, str]:
    """Core tensor name -> public tensor name, for every tensor of a network but those that are
    others of it.

    Args:
        keys: `KEYS` of the family.
    """
    found = {}
    for name in names:
        if name in tied:
            continue
        parts = name.split(".")
        block = parts[1] if parts[0] == "blocks" else ""
        pattern = name.replace(f"blocks.{block}.", "blocks.{i}.", 1) if block else name
        if pattern not in keys:
            prefix = next(key for key in keys if key.endswith(".") and pattern.startswith(key))
            found[name] = keys[prefix] + pattern.removeprefix(prefix)
        else:
            found[name] = keys[pattern].format(i=block)
    return found
