"""The network of HPSv3 from transformers' Qwen2-VL, and the names its checkpoint has.

    score, deviation = head(hidden state of <|Reward|>),   head: width to 1024 to 16 to 2, ReLU

The published network runs on transformers 4.45.2, where a Qwen2-VL that is called with embeddings
gets the plain positions 0, 1, 2, … on all three axes of its rotary embedding, image tokens
included. The checkpoint was trained so. Newer releases would compute positions of rows and columns;
positions are therefore passed here.
"""

import copy
from collections.abc import Mapping
from typing import Any

import torch
from accelerate import init_empty_weights
from torch import Tensor, nn

from mmrl.rewards.networks.checkpoints import fill_network

HEAD_WIDTHS = (1024, 16)
UNUSED = "lm_head.weight"
"""Next-token head of the backbone, which the published file holds as well."""
EMBEDDING = "backbone.language_model.embed_tokens.weight"


def rename_weight(published: str) -> str | None:
    """The name of a published weight here, in the dialect of transformers before or since 4.52;
    None for what is not used. Unknown names stay."""
    if published == UNUSED:
        return None
    if published.startswith("rm_head."):
        return published.replace("rm_head.", "head.", 1)
    if published.startswith(("model.visual.", "model.language_model.")):
        return published.replace("model.", "backbone.", 1)
    if published.startswith("visual."):
        return f"backbone.{published}"
    return published.replace("model.", "backbone.language_model.", 1)


class HPSv3Network(nn.Module):
    """Tokens and patches of images to scores, of transformers' `Qwen2VLConfig`, whose vocabulary
    includes the reward token."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        from transformers import Qwen2VLModel

        self.backbone = Qwen2VLModel(config)
        wide, narrow = HEAD_WIDTHS
        self.head = nn.Sequential(
            nn.Linear(config.text_config.hidden_size, wide),
            nn.ReLU(),
            nn.Dropout(0.05),
            nn.Linear(wide, narrow),
            nn.ReLU(),
            nn.Linear(narrow, 2),
        )

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor,
        pixel_values: Tensor,
        image_grid_thw: Tensor,
        reward_id: int,
    ) -> Tensor:
        """[B, 2] float32: score and deviation, of tokens [B, L], padded on the right with a mask of
        0, the reward token once in each row, and of `pixel_values` [patches, D] of all images, of
        which `image_grid_thw` [B, 3] has the patches by frame, row and column."""
        positions = torch.arange(input_ids.shape[1], device=input_ids.device)
        states = self.backbone(
            input_ids=input_ids,
            attention_mask=attention_mask,
            position_ids=positions.expand(3, *input_ids.shape),
            pixel_values=pixel_values,
            image_grid_thw=image_grid_thw,
            use_cache=False,
        ).last_hidden_state
        return self.head(states[input_ids == reward_id].float())


def build_network(
    weights: Mapping[str, Tensor], config: Any, dtype: torch.dtype, what: str
) -> HPSv3Network:
    """The network that published weights belong to, filled with them where they are; `config` is
    that of the backbone before the reward token was added, `dtype` the backbone's (the head is
    float32, as published), and `what` names the checkpoint in messages. Raises ValueError: weights
    are missing, unknown, or have other shapes."""
    ours = {rename_weight(name): value for name, value in weights.items()}
    ours.pop(None, None)
    config = copy.deepcopy(config)
    if isinstance(ours.get(EMBEDDING), Tensor):
        config.text_config.vocab_size = len(ours[EMBEDDING])
    with init_empty_weights():
        network = HPSv3Network(config)
    kept = {
        name: value.to(torch.float32 if str(name).startswith("head.") else dtype)
        for name, value in ours.items()
    }
    fill_network(network, kept, f"{what} is no HPSv3 network", assign=True)  # type: ignore[arg-type]
    return network
