"""What vLLM's workers import as `--worker-extension-cls`: the weight transfer named mmrl, and a
description of the model.

The classes of vLLM that it extends are those of 0.32 and later.
"""

from dataclasses import dataclass, field
from typing import Any

from vllm.distributed.weight_transfer.base import (  # type: ignore[import-not-found]
    WeightTransferEngine,
    WeightTransferInitInfo,
    WeightTransferUpdateInfo,
)
from vllm.distributed.weight_transfer.factory import (  # type: ignore[import-not-found]
    WeightTransferEngineFactory,
)
from vllm.model_executor.model_loader.reload import (  # type: ignore[import-not-found]
    finalize_layerwise_reload,
    initialize_layerwise_reload,
)

from mmrl.engines.weight_transfer import Receiver


@dataclass
class Meeting(WeightTransferInitInfo):
    """See `GroupSender.open`."""

    host: str
    port: int
    size: int
    backend: str


@dataclass
class Part(WeightTransferUpdateInfo):
    """See `mmrl.engines.weight_transfer`."""

    path: str | None = None
    names: list[str] = field(default_factory=list)
    dtype_names: list[str] = field(default_factory=list)
    shapes: list[list[int]] = field(default_factory=list)


class Transfer(WeightTransferEngine[Meeting, Part]):
    """Receives weights in the format of the checkpoint."""

    init_info_cls, update_info_cls = Meeting, Part

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.receiver = Receiver(self.device, self.parallel_config.rank)

    def init_transfer_engine(self, init_info: Meeting) -> None:
        self.receiver.meet(vars(init_info))

    def start_weight_update(self) -> None:
        initialize_layerwise_reload(self.model)

    def update_weights(self, update_info: dict[str, Any]) -> None:
        # without the base's wait for an accelerator, which a CPU has not
        self.receive_weights(self.parse_update_info(update_info))

    def receive_weights(self, update_info: Part) -> None:
        self.model.load_weights(self.receiver.receive(vars(update_info)))

    def finish_weight_update(self) -> None:
        finalize_layerwise_reload(self.model, self.model_config)
        refresh_head(self.model)

    def shutdown(self) -> None:
        self.receiver.group = None


def refresh_head(model: Any) -> None:
    """Let an output head take the embeddings that it shares: on a CPU it has its own copy,
    which vLLM 0.32 does not renew when weights are reloaded."""
    head: Any = getattr(model, "lm_head", None)
    if model.config.tie_word_embeddings and hasattr(head, "quant_method"):
        head.quant_method.process_weights_after_loading(head)


class Worker:
    """What an engine says of its model."""

    vllm_config: Any

    def describe_model(self) -> dict[str, Any]:
        """The `config.json` of the model, and what its log-probs are of."""
        config = self.vllm_config.model_config
        return {"config": config.hf_config.to_dict(), "logprobs_mode": str(config.logprobs_mode)}


WeightTransferEngineFactory.register_engine("mmrl", Transfer)
