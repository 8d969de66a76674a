"""A causal language model of transformers as a network: nothing of it is written again.

The output at a column predicts the next token, so that the logits of a position are those of the
column before it, as in networks that shift. Positions are counted from the first token that is
attended to, and a row with padding on its left equals the row alone.
"""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mmrl.models.network.attention import choose_attention
from mmrl.models.network.core import find_predecessors
from mmrl.models.network.token_network import TokenNetwork


class CausalCache:
    """Keys and values of the columns that rows have read, transformers' own."""

    def __init__(self, stored: Any) -> None:
        self.stored = stored
        self.shift: Tensor | None = None
        """[R, 1] int64, what is added to positions after images, which count for fewer or more than
        their columns."""

    @property
    def length(self) -> int:
        """Columns that were read."""
        return self.stored.get_seq_length()

    def take_rows(self, index: Tensor) -> None:
        """Keep the rows `index` [r] int64, in this order; a row may be named several times, as the
        prompt of a group that was read once."""
        self.stored.batch_select_indices(index)
        self.shift = None if self.shift is None else self.shift[index]


class CausalLM(TokenNetwork):
    """The decoder of a model as `body` and its output matrix as `head`."""

    can_cache = shifts = causal = True
    decoder = "body"
    layer_roles = {
        **{role: (f"self_attn.{role}_proj",) for role in ("q", "k", "v", "o")},
        **{role: (f"mlp.{role}_proj",) for role in ("gate", "up", "down")},
    }

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.body, self.head = model.model, model.lm_head
        self.register_module("vision", None)
        self.sizes, self.blocks = model.config.get_text_config(), list(model.get_decoder().layers)
        self.width, self.vocab_size = self.sizes.hidden_size, self.head.weight.shape[0]
        if model.config.tie_word_embeddings:
            self.head.weight = model.get_input_embeddings().weight
            self.tied = {"head.weight": f"{self.decoder}.embed_tokens.weight"}

    def load_parts(self, folder: Path, dtype: torch.dtype, device: torch.device | str) -> None:
        """Compute the tensors that no checkpoint holds, as the frequencies of rotary embeddings;
        they are float32 whatever the weights are."""
        for module in self.body.modules():
            absent = {name: b for name, b in module.named_buffers(recurse=False) if b.is_meta}
            for name, buffer in absent.items():
                kind = torch.float32 if buffer.is_floating_point() else buffer.dtype
                module._buffers[name] = torch.empty_like(buffer, dtype=kind, device=device)
            if absent:
                for parameter in module.parameters(recurse=False):
                    parameter._is_hf_initialized = True  # type: ignore[attr-defined]
                self.body._init_weights(module)

    def set_attention(self, implementation: str) -> None:
        super().set_attention(implementation)
        dtype = next(self.body.parameters()).dtype
        kernel, _ = choose_attention(implementation, self.device.type, dtype)
        self.body.set_attn_implementation(kernel)

    def hidden_states(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        positions: Tensor | None = None,
        cache: CausalCache | None = None,
        position_ids: Tensor | None = None,
        **images: Any,
    ) -> Tensor:
        """See `TokenNetwork.hidden_states`: states that predict each position. With a `cache` the
        input is the columns after those that it holds, which it holds afterwards, without
        `positions`, and [B, D] predict the next column.

        `position_ids` [B, L] int64 are those of each token in its text; None counts those that are
        attended to. Without a mask, a text begins wherever they do not go on by 1."""
        places = position_ids
        if places is None and attention_mask is not None:
            counted = (attention_mask.long().cumsum(1) - 1).clamp(min=0)
            places = counted[:, -input_ids.shape[1] :]
        x = self._read(input_ids, attention_mask, places, cache, **images)
        if cache is not None:
            return x[:, -1]
        before = find_predecessors(x, position_ids, attention_mask)
        if positions is None:
            return x.gather(1, before[..., None].expand_as(x))
        rows, asked = positions.nonzero(as_tuple=True)
        return x[rows, before[rows, asked]]

    def _read(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None,
        places: Tensor | None,
        cache: CausalCache | None,
        **images: Any,
    ) -> Tensor:
        """Final hidden states [B, L, D] of the columns of the input."""
        with self.recomputed():
            return self.body(
                input_ids=input_ids,
                attention_mask=attention_mask,
                position_ids=places,
                past_key_values=None if cache is None else cache.stored,
                use_cache=cache is not None,
                **images,
            ).last_hidden_state

    def new_cache(self, length: int | None = None) -> CausalCache:
        from transformers import DynamicCache

        return CausalCache(DynamicCache(config=self.body.config))

    def count_activations(self, length: int, recompute: bool, size: int) -> tuple[float, float]:
        """A block keeps, for each token, 6 vectors of the hidden width and 2 in float32, 5 of the
        width of its heads and 4 of its MLP."""
        sizes = self.sizes
        heads = sizes.num_attention_heads * self._head_dim
        block = (6 * self.width + 5 * heads + 4 * sizes.intermediate_size) * size + 8 * self.width
        kept = sizes.num_hidden_layers * (self.width * size if recompute else block)
        working = (2 * self.width + 4 * sizes.intermediate_size) * size
        return length * kept, length * (working + block * recompute)

    def count_cached(self, length: int) -> int:
        sizes = self.sizes
        return 2 * length * sizes.num_key_value_heads * self._head_dim * sizes.num_hidden_layers

    @property
    def _head_dim(self) -> int:
        own = getattr(self.sizes, "head_dim", None)
        return own or self.width // self.sizes.num_attention_heads
