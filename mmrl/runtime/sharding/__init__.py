"""How the processes of a run share a model: one file per way, chosen by the launch configuration.

Moments and checkpoints are whole tensors under the names and places they have in one process, so a
run continues with any number of processes and in any of these ways.
"""

from accelerate import Accelerator, DistributedType

from mmrl.runtime.launch import find_sharding
from mmrl.runtime.sharding.fsdp2 import FSDP2
from mmrl.runtime.sharding.sharding import Sharding
from mmrl.runtime.sharding.zero import Zero2, Zero3


def build_sharding(accelerator: Accelerator, half: bool = False) -> Sharding:
    """The way that the accelerate configuration of this launch asks for; with `half` models run
    under bfloat16 autocast and blocks are not compiled, so weights may be gathered in bfloat16."""
    plugin = accelerator.deepspeed_plugin
    if plugin is not None:
        return Zero3(accelerator) if plugin.zero_stage == 3 else Zero2(accelerator)
    launched = accelerator.distributed_type != DistributedType.NO
    shared = launched and find_sharding() == "FSDP"
    return FSDP2(accelerator, half) if shared else Sharding(accelerator)
