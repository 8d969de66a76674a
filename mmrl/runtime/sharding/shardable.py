"""Which models processes can share."""

from torch import nn

from mmrl.config import ConfigError
from models.network.core import Block


def find_blocks(model: nn.Module, distributed_type: str) -> list[nn.Module]:
    """The blocks of a model, the units in which it is sharded.

    Args:
        model: to be sharded.
        distributed_type: of the accelerate configuration, for messages.

    Raises:
        ConfigError: a model without a block of the core, or with weights of 4 bits.
    """
    asked = f"distributed_type is {distributed_type} in the accelerate configuration"
    advice = "Launch it with --config_file configs/accelerate/multi_gpu.yaml."
    blocks: list[nn.Module] = [module for module in model.modules() if isinstance(module, Block)]
    if not blocks:
        raise ConfigError(
            f"{asked} and {type(model).__name__} has no block of the masked-token core to shard."
            f" {advice}"
        )
    if not all(parameter.is_floating_point() for parameter in model.parameters()):
        raise ConfigError(
            f"quantization_config is given and {asked}: weights of 4 bits are not sharded. {advice}"
        )
    return blocks
