"""A judge in this process: a Qwen-VL model of transformers, its images by qwen-vl-utils.

Requests are those that a server would get. A JSON schema is not enforced here; the reply is only
parsed.
"""

from collections.abc import Sequence
from typing import Any

import torch

from mmrl.config import import_extra
from mmrl.rewards.http import stop
from mmrl.rewards.http.service import Deadline
from mmrl.rewards.judging.reply import CutReply, sum_yes
from mmrl.rewards.networks.checkpoints import load_part
from mmrl.rewards.networks.placement import freeze

PATCH_SIZE = 14
"""Side of a patch where the processor names none (Qwen2.5-VL)."""


class LocalJudge:
    """Generates replies greedily, `batch_size` at once, by a Qwen2-VL, Qwen2.5-VL or Qwen3-VL
    checkpoint. Raises ConfigError: qwen-vl-utils is missing, or there is no such checkpoint."""

    def __init__(self, model: str, device: str, dtype: str, batch_size: int) -> None:
        self._read_images = import_extra("qwen_vl_utils", "judge").process_vision_info
        from transformers import AutoModelForImageTextToText, AutoProcessor

        self.processor = load_part(AutoProcessor, model, "judge.model")
        network = load_part(AutoModelForImageTextToText, model, "judge.model", dtype=dtype)
        self.network, self.batch_size = freeze(network, device), batch_size

    def ask(self, requests: Sequence[dict[str, Any]], deadline: Deadline) -> list[str | Exception]:
        """The replies in order; a TimeoutError for those not begun before the deadline."""
        replies: list[str | Exception] = []
        late = TimeoutError("the deadline passed before this judge was asked")
        for first in range(0, len(requests), self.batch_size):
            stop.check()
            some = requests[first : first + self.batch_size]
            answer = self._probabilities if some[0].get("logprobs") else self._replies
            replies += answer(some) if deadline.left else [late] * len(some)
        return replies

    def ready(self, model: str) -> str:
        """Empty: what is loaded can answer."""
        return ""

    @torch.no_grad()
    def _probabilities(self, requests: Sequence[dict[str, Any]]) -> list[str]:
        """Those of yes as the first word."""
        logits = self.network(**self._read(requests), logits_to_keep=1).logits[:, -1]
        listed = logits.float().log_softmax(-1).topk(min(20, logits.shape[-1]))
        words = [self.processor.batch_decode(row[:, None]) for row in listed.indices]
        rows = zip(words, listed.values.tolist(), strict=True)
        return [sum_yes(zip(*row, strict=True)) for row in rows]

    @torch.no_grad()
    def _replies(self, requests: Sequence[dict[str, Any]]) -> list[str]:
        inputs = self._read(requests)
        limit = max(request["max_tokens"] for request in requests)
        written = self.network.generate(**inputs, do_sample=False, max_new_tokens=limit)
        new = written[:, inputs["input_ids"].shape[1] :]
        ends = torch.tensor(self.network.generation_config.eos_token_id or [], device=new.device)
        texts = self.processor.batch_decode(new, skip_special_tokens=True)
        has_end = torch.isin(new, ends).any(1)
        return [text if end else CutReply(text) for text, end in zip(texts, has_end, strict=True)]

    def _read(self, requests: Sequence[dict[str, Any]]) -> Any:
        """The inputs of the network."""
        conversations = [[_local(message) for message in r["messages"]] for r in requests]
        texts = [
            self.processor.apply_chat_template(c, tokenize=False, add_generation_prompt=True)
            for c in conversations
        ]
        patch = getattr(self.processor.image_processor, "patch_size", PATCH_SIZE)
        images, _ = self._read_images(conversations, image_patch_size=patch)
        return self.processor(
            text=texts, images=images, padding=True, padding_side="left", return_tensors="pt"
        ).to(self.network.device)


def _local(message: dict[str, Any]) -> dict[str, Any]:
    """A message with images as the processor's template knows them."""
    content = message["content"]
    if isinstance(content, str):
        return message
    shown = [{"type": "image", "image": p["image_url"]["url"]} for p in content if "image_url" in p]
    return {**message, "content": [*shown, *(part for part in content if "text" in part)]}
