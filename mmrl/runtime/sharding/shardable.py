"""Which models processes can share."""

from torch import nn

from mmrl.config import ConfigError, check
from mmrl.models.network.core import Block
from mmrl.runtime.launch import find_sharding

ADVICE = "Launch it with --config_file configs/accelerate/multi_gpu.yaml."


def check_shardable(network: nn.Module, key: str, value: object) -> None:
    """Refuse a network that the launch would shard and that has no block; weights are not read.

    Args:
        network: may be on the meta device.
        key: of the setting that names its checkpoint, or what is trained.
        value: of it.

    Raises:
        ConfigError: there is no block of the core, and the launch shards.
    """
    kind = find_sharding()
    allowed = f"one with blocks of the masked-token core where distributed_type is {kind}"
    advice = f"{type(network).__name__} has no block to shard. {ADVICE}"
    check(kind is None or bool(_list_blocks(network)), key, value, allowed, advice)


def check_unpacked(settings: object, key: str) -> None:
    """Refuse weights of 4 bits where the launch shards.

    Args:
        settings: a `QuantizationConfig`, or None.
        key: of them.

    Raises:
        ConfigError: they are given, and the launch shards.
    """
    kind = find_sharding()
    allowed = f"null where distributed_type is {kind}: weights of 4 bits are not sharded"
    check(kind is None or settings is None, key, "given", allowed, ADVICE)


def find_blocks(model: nn.Module, distributed_type: str) -> list[nn.Module]:
    """The blocks of a model, the units in which it is sharded.

    Args:
        model: to be sharded.
        distributed_type: of the accelerate configuration, for messages.

    Raises:
        ConfigError: a model without a block of the core, or with weights of 4 bits.
    """
    asked = f"distributed_type is {distributed_type} in the accelerate configuration"
    blocks = _list_blocks(model)
    if not blocks:
        raise ConfigError(
            f"{asked} and {type(model).__name__} has no block of the masked-token core to shard."
            f" {ADVICE}"
        )
    if not all(parameter.is_floating_point() for parameter in model.parameters()):
        raise ConfigError(
            f"quantization_config is given and {asked}: weights of 4 bits are not sharded. {ADVICE}"
        )
    return blocks


def _list_blocks(model: nn.Module) -> list[nn.Module]:
    return [module for module in model.modules() if isinstance(module, Block)]
