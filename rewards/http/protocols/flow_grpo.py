"""The servers of flow_grpo and MaskGRPO (reward-server): pickles over HTTP, `POST /`.

    {name: geneval, mode: client, protocol: flow_grpo, url: http://127.0.0.1:18085}

| name | usual port | sent | scores |
| --- | --- | --- | --- |
| geneval | 18085 | images, meta_datas, only_strict | `scores` |
| deqa | 18086 | images | `outputs`, divided by 5 by the server |
| hpsv3 | 18087 | images, prompts | `scores`, raw |
| unifiedreward | 18088 | images, prompts | `scores` (MaskGRPO), `outputs` (flow_grpo) |

These servers read JPEG only, so they score images that differ slightly from those of the policy
(`jpeg_quality`; flow_grpo itself sends 75); an alpha channel is put on white. A request is a pickle
of plain types, and so is its answer, which `mmrl.rewards.http.protocols.plain_pickle` reads without
running code. Scores are in the order of the items, and their number is checked. An exception in the
server is a status of 500 for the whole request. Most servers have one worker, so few requests run
at once, and each may take long.
"""

import logging
import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np
from PIL import Image

from mmrl.config import above, at_least, check_choice
from mmrl.rewards.detection.geneval_rules import check_clauses
from mmrl.rewards.http.client import AnswerError, ClientReward, Outcome, plain_metadata
from mmrl.rewards.http.protocols.plain_pickle import read_pickle
from mmrl.rewards.http.service import Refused
from mmrl.rewards.parsing.images import Files, image_of, jpeg
from mmrl.types import Sample

logger = logging.getLogger(__name__)

SENT = {
    "geneval": ("images", "meta_datas"),
    "deqa": ("images",),
    "hpsv3": ("images", "prompts"),
    "unifiedreward": ("images", "prompts"),
}
"""What each server reads."""
SCORES = {"geneval": ("scores",), "deqa": ("outputs",), "hpsv3": ("scores",)}
"""Keys of the scores in the answer of each; the first that is present counts."""


@dataclass(kw_only=True, eq=False)
class FlowGRPOReward(ClientReward):
    """A reward of one of these servers, for images."""

    path: ClassVar[str] = "/"
    kind: ClassVar[str] = "application/octet-stream"
    needs: ClassVar[tuple[str, ...]] = ("prompt", "images")

    timeout_s: Annotated[float, above(0)] = 300.0
    deadline_s: Annotated[float, above(0)] = 1800.0
    concurrency: Annotated[int, above(0)] = 2
    batch_size: Annotated[int, at_least(1)] = 64
    jpeg_quality: Annotated[int, at_least(1, up_to=100)] = 95
    """Quality of the images that are sent."""

    def __post_init__(self) -> None:
        check_choice("name", self.name, SENT)
        super().__post_init__()
        said = "%s takes JPEG alone: its scores are of images at quality %d, not of every pixel"
        logger.info(said, self.name, self.jpeg_quality)

    def check(self, metadata: Mapping[str, Any]) -> None:
        """Raise a ValueError where a prompt lacks what the server reads."""
        if self.name != "geneval":
            return
        lacking = [key for key in ("tag", "include") if metadata.get(key) is None]
        if lacking:
            raise ValueError(f"geneval reads the metadata {' and '.join(lacking)}, not there.")
        for key in ("include", "exclude"):
            check_clauses(key, metadata.get(key) or [])

    def encode_image(self, image: Image.Image) -> bytes:
        """A JPEG file."""
        return jpeg(image, self.jpeg_quality)

    def item(self, sample: Sample, files: Files[bytes]) -> dict[str, Any]:
        """Image, prompt and metadata; the metadata of GenEval hold the prompt as well."""
        image_of(sample, self.name)
        self.check(sample.metadata)
        prompt = "".join(sample.prompt)  # a pickle would name the class of another kind of text
        metadata = plain_metadata(sample) if self.name == "geneval" else {}
        image = files.completion(sample.completion)  # type: ignore[arg-type]
        return {"images": image, "prompts": prompt, "meta_datas": {"prompt": prompt, **metadata}}

    def request(self, items: Mapping[str, Any]) -> bytes:
        """A pickle of lists, one for each kind of thing that is sent."""
        content: dict[str, Any] = {
            kind: [item[kind] for item in items.values()] for kind in SENT[self.name]
        }
        if self.name == "geneval":
            content["only_strict"] = True  # without the lenient verdict, which takes time
        return pickle.dumps(content, protocol=4)

    def scores(self, body: bytes, ids: Sequence[str]) -> dict[str, Outcome]:
        """The scores in the order of the items."""
        answer = read_pickle(body)
        answer = answer if isinstance(answer, dict) else {}
        wanted = SCORES.get(self.name, ("scores", "outputs"))
        scores = next((answer[key] for key in wanted if key in answer), None)
        scores = scores.tolist() if isinstance(scores, np.ndarray) else scores
        if not isinstance(scores, list | tuple) or len(scores) != len(ids):
            raise AnswerError(
                f"the answer has {list(answer)[:10]}, and no {len(ids)} {' or '.join(wanted)}"
            )
        none = AnswerError("the score is None")  # which these servers never answer
        given = [none if score is None else score for score in scores]
        return dict(zip(ids, given, strict=True))

    def state(self, answer: Any) -> str:
        """Whether the page is there, for `POST` alone; these servers have none that says more."""
        is_there = isinstance(answer, Refused) and answer.status == 405
        return "" if is_there else f"it does not speak this protocol: {str(answer)[:200]}"
