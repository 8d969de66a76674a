"""The servers of flow_grpo and MaskGRPO (reward-server): pickles over HTTP, `POST /`.

    {name: geneval, mode: client, protocol: flow_grpo, url: http://127.0.0.1:18085}

| name | usual port | sent | scores |
| --- | --- | --- | --- |
| geneval | 18085 | images, meta_datas, only_strict | `scores`; also `rewards`, `strict_rewards` |
| deqa | 18086 | images | `outputs`, divided by 5 by the server |
| hpsv3 | 18087 | images, prompts | `scores`, raw |
| unifiedreward | 18088 | images, prompts | `scores` (MaskGRPO), `outputs` (flow_grpo) |

These servers read JPEG only, so they score images that differ slightly from those of the policy
(`jpeg_quality`; flow_grpo itself sends 75). A request is a pickle of plain types, and so is its
answer, which is read by `mmrl.rewards.http.protocols.plain_pickle` without running code. There are
no
ids: scores are in the order of the items, and their number is checked. An exception in the server
is a status of 500 for the whole request, which is retried and then halved until the bad item is
alone. Most servers have one worker, so few requests run at once, and each may take long. Images
with an alpha channel are put on white, as in flow_grpo.
"""

import json
import logging
import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from PIL import Image

from mmrl.config import check, check_choice
from mmrl.rewards.detection.geneval_rules import check_clauses
from mmrl.rewards.http.client import ClientReward
from mmrl.rewards.http.errors import Refused
from mmrl.rewards.http.protocols.answers import AnswerError, Outcome, copy_metadata
from mmrl.rewards.http.protocols.plain_pickle import read_pickle
from mmrl.rewards.http.protocols.recognition import takes_posts_alone
from mmrl.rewards.parsing.images import Files, jpeg
from mmrl.types import Sample

logger = logging.getLogger(__name__)

SENT = {"geneval": "meta_datas", "deqa": None, "hpsv3": "prompts", "unifiedreward": "prompts"}
"""What each server reads in addition to the images."""
SCORES = {
    "geneval": ("scores",),
    "deqa": ("outputs",),
    "hpsv3": ("scores",),
    "unifiedreward": ("scores", "outputs"),
}
"""Keys of the scores in the answer of each; the first that is present counts."""
GENEVAL_KEYS = ("tag", "include")


@dataclass(kw_only=True, eq=False)
class FlowGRPOReward(ClientReward):
    """A reward of one of these servers, for images."""

    path: ClassVar[str] = "/"
    kind: ClassVar[str] = "application/octet-stream"
    needs: ClassVar[tuple[str, ...]] = ("prompt", "images")

    timeout_s: float = 300.0
    deadline_s: float = 1800.0
    concurrency: int = 2
    batch_size: int = 64
    jpeg_quality: int = 95
    """Quality of the images that are sent."""
    field: str = ""
    """Which list of the answer has the scores; empty for the usual one."""
    only_strict: bool = True
    """Of geneval: leave out the lenient verdict (`rewards`), which takes time."""

    def __post_init__(self) -> None:
        check_choice("name", self.name, SENT)
        check(1 <= self.jpeg_quality <= 100, "jpeg_quality", self.jpeg_quality, "from 1 to 100")
        lenient = self.name == "geneval" and self.field == "rewards"
        check(
            not (lenient and self.only_strict),
            f"{self.name}.field",
            self.field,
            "another list with only_strict: true, where the server leaves this one all False",
            "Set only_strict: false.",
        )
        super().__post_init__()
        logger.info(
            "%s takes JPEG alone: its scores are of images at quality %d, not of every pixel",
            self.name,
            self.jpeg_quality,
        )

    def check(self, metadata: Mapping[str, Any]) -> None:
        """Raise a ValueError where a prompt lacks what the server reads."""
        if self.name != "geneval":
            return
        lacking = [key for key in GENEVAL_KEYS if metadata.get(key) is None]
        if lacking:
            raise ValueError(f"geneval reads the metadata {' and '.join(lacking)}, not there.")
        for key in ("include", "exclude"):
            check_clauses(key, metadata.get(key) or [])

    def encode_image(self, image: Image.Image) -> bytes:
        """A JPEG file."""
        return jpeg(image, self.jpeg_quality)

    def item(self, sample: Sample, files: Files[bytes]) -> dict[str, Any]:
        """Image, prompt and metadata; the metadata of GenEval hold the prompt as well."""
        if not isinstance(sample.completion, Image.Image):
            raise ValueError(f"{self.name} scores images, and this completion is a text.")
        self.check(sample.metadata)
        item: dict[str, Any] = {"images": files.completion(sample.completion)}
        if SENT[self.name] == "prompts":
            item["prompts"] = str(sample.prompt)
        if SENT[self.name] == "meta_datas":
            # through JSON: a pickle would name the class of what only resembles a plain type
            plain = json.loads(json.dumps(copy_metadata(sample)))
            item["meta_datas"] = {"prompt": str(sample.prompt), **plain}
        return item

    def request(self, items: Mapping[str, Any]) -> bytes:
        """A pickle of lists, one for each kind of thing that is sent."""
        kinds = [kind for kind in ("images", SENT[self.name]) if kind is not None]
        content: dict[str, Any] = {kind: [item[kind] for item in items.values()] for kind in kinds}
        if self.name == "geneval":
            content["only_strict"] = self.only_strict
        return pickle.dumps(content, protocol=4)

    def scores(self, body: bytes, ids: Sequence[str]) -> dict[str, Outcome]:
        """The scores in the order of the items."""
        answer = read_pickle(body)
        wanted = (self.field,) if self.field else SCORES[self.name]
        found = [answer[key] for key in wanted if key in answer] if type(answer) is dict else []
        if not found:
            has = ", ".join(map(str, answer))[:200] if type(answer) is dict else type(answer)
            raise AnswerError(f"the answer has {has}, and no {' or '.join(wanted)}")
        scores = found[0].tolist() if isinstance(found[0], np.ndarray) else found[0]
        if type(scores) not in (list, tuple) or len(scores) != len(ids):
            count = len(scores) if type(scores) in (list, tuple) else "no list of"
            raise AnswerError(f"the answer has {count} scores for {len(ids)} items")
        # these servers never answer None
        return {
            key: AnswerError("the score is None") if score is None else score
            for key, score in zip(ids, scores, strict=True)
        }

    def state(self, answer: Any) -> str:
        """Whether the page is there, for `POST` alone; these servers have none that says more."""
        if takes_posts_alone(answer):
            return ""
        said = str(answer) if isinstance(answer, Refused) else "it answers GET / with JSON"
        return f"it does not speak this protocol: {said}"
