"""What the files of a checkpoint say before it is loaded, where they are on this machine."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
import yaml
from huggingface_hub import try_to_load_from_cache
from huggingface_hub.errors import HFValidationError

from mmrl.config import check
from mmrl.config.checks import is_hub_id
from mmrl.config.settings_file import read_settings_file
from mmrl.models.families import FAMILIES, find_family, get_family, mmada, pipeline
from mmrl.models.families.family import Family
from mmrl.models.image_tokenizers import OWN_VQ, PUBLIC_VQ, find_vq
from mmrl.models.image_tokenizers.image_tokenizer import build_vq
from mmrl.models.layouts.causal_images import load_reader, outline_reader
from mmrl.models.network.network import Network
from mmrl.models.source import ADAPTER_CONFIG, INDEX, find_base, find_directory, is_adapter
from mmrl.models.task_names import writes_images
from mmrl.models.weights import read_headers
from mmrl.pretrained.model_config import ModelConfig

HOLDERS = ("Alpha-VLLM/Lumina-DiMOO", "amused/")
"""Beginnings of hub ids of checkpoints that hold their own image tokenizer."""
HERE = Path(__file__).parent
PUBLIC_SIZES: dict[str, str] = yaml.safe_load((HERE / "published_ids.yaml").read_text("utf-8"))
"""Beginnings of hub ids of published checkpoints, and whose sizes these have."""
SIZES: dict[str, Any] = yaml.safe_load((HERE / "published_sizes.yaml").read_text("utf-8"))
"""What of the `config.json` of published checkpoints says their sizes, by the names above."""
CONFIGS = ("config.json", "model_index.json", "adapter_config.json", "*/config.json", "pre*.json")
"""Files of a checkpoint that say what it is."""
PUBLIC_PATCH = 16
"""Side in pixels of what a token shows, in the published image tokenizers."""
CODES = 8192
"""Codes of the published image tokenizers."""
BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "float64": 8}
"""Of a number of a `dtype`."""


def known_config(path_or_hub_id: str) -> dict[str, Any] | None:
    """`config.json` of a checkpoint on this machine, a directory or cached, that of the base for an
    adapter, and what `read_pipeline` makes of a pipeline; None if neither."""
    directory = known_directories(path_or_hub_id)[-1:]
    if directory and pipeline.is_pipeline(directory[0]):
        try:
            return pipeline.read_pipeline(directory[0])
        except FileNotFoundError:
            if Path(path_or_hub_id).expanduser().is_dir():
                raise
    file = directory[0] / "config.json" if directory else None
    return read_settings_file(file) if file is not None and file.is_file() else None


def find_published(path_or_hub_id: str) -> tuple[str | None, dict[str, Any]]:
    """Name and sizes of the published checkpoint that this is; None and nothing where it is not."""
    names = [name for start, name in PUBLIC_SIZES.items() if path_or_hub_id.startswith(start)]
    return (names[0], SIZES[names[0]]) if names else (None, {})


def find_sizes(path_or_hub_id: str) -> tuple[str | None, Mapping[str, Any]]:
    """None and `config.json` of a checkpoint; where that is not on this machine, name and sizes of
    the published one that it is. Raises ConfigError: it is neither here nor published."""
    raw = known_config(path_or_hub_id)
    if raw is not None and find_family(raw) is not None:
        return None, raw
    name, sizes = find_published(path_or_hub_id)
    check(bool(name), "model.path", path_or_hub_id, "a checkpoint whose sizes are known")
    return name, sizes


def known_directories(path_or_hub_id: str) -> list[Path]:
    """The directory of a checkpoint on this machine, and after that of an adapter that of its base;
    without what is not here."""

    def find(name: str) -> list[Path]:
        files = (known_file(name, file) for file in ("config.json", ADAPTER_CONFIG, INDEX))
        return [file.parent for file in files if file is not None][:1]

    found = find(path_or_hub_id)
    return found + find(str(find_base(found[0]))) if found and is_adapter(found[0]) else found


def find_here(key: str, path_or_hub_id: str, left_out: Sequence[str] = ()) -> Path | None:
    """The directory of a checkpoint on this machine, also that of a whole download, or of one
    without the weights of parts that are `left_out`; None for one of the hub that is not here.

    Of a published one nothing is asked. Of another the files that say what it is are downloaded, so
    that a repository that does not exist is found before anything else is done. Raises ConfigError:
    neither a directory nor possibly on the hub. Raises FileNotFoundError: the hub does not return
    it."""
    directory = Path(path_or_hub_id).expanduser()
    if directory.is_dir():
        return directory
    possible, allowed = is_hub_id(path_or_hub_id), "an existing directory or a hub id"
    check(possible, key, path_or_hub_id, allowed, "There is neither.")
    names = ("config.json", "model_index.json")
    found = [file for name in names if (file := known_file(path_or_hub_id, name)) is not None]
    if found:
        try:
            for folder in pipeline.network_directories(found[0].parent).values():
                read_headers(folder, pickled=True)
            pipeline.check_parts(found[0].parent, left_out)
        except FileNotFoundError:  # a download that has not ended
            return None
        return found[0].parent
    if path_or_hub_id != PUBLIC_VQ and not path_or_hub_id.startswith(tuple(PUBLIC_SIZES)):
        find_directory(path_or_hub_id, patterns=CONFIGS)
    return None


def known_file(path_or_hub_id: str, name: str) -> Path | None:
    """A file of a checkpoint on this machine, a directory or cached; None where it has none."""
    file = Path(path_or_hub_id).expanduser() / name
    if file.is_file():
        return file
    try:
        cached = try_to_load_from_cache(path_or_hub_id, name)
    except HFValidationError:
        return None
    return Path(cached) if isinstance(cached, str) else None


def adapter_directory(path_or_hub_id: str) -> Path | None:
    """The directory of an adapter that is here or cached; None for anything else."""
    return next(filter(is_adapter, known_directories(path_or_hub_id)[:1]), None)


@dataclass(frozen=True)
class Known:
    """What is known of the checkpoints of a policy with these settings before they are loaded.
    `config`: see `known_config`; where the checkpoint is not on this machine, None or the sizes of
    the published one that it is."""

    model: ModelConfig
    config: Mapping[str, Any] | None

    @classmethod
    def read(cls, model: ModelConfig) -> Known:
        """Read `config.json` of the policy's checkpoint, where it is on this machine."""
        return cls(model, known_config(model.path))

    @cached_property
    def families(self) -> list[Family]:
        """The family of the checkpoint, see `mmrl.models.families`; all of them where it is neither
        on this machine nor published."""
        family = find_family(self.config or find_published(self.model.path)[1])
        return list(FAMILIES.values()) if family is None else [family]

    @cached_property
    def blocks(self) -> dict[str, Any] | None:
        """Size and alignment of the blocks in which the network writes, under the keys of its
        config.json; None where it does not write in blocks, or is not on this machine."""
        model = self.model
        complete = getattr(find_family(self.config or {}), "complete_config", None)
        if self.config is None or complete is None:
            return None
        chosen = {"block_size": model.block_size, "block_alignment": model.block_alignment}
        stated = {key: value for key, value in chosen.items() if value is not None}
        return {**complete(self.config, Path(model.path)), **stated}

    @property
    def reads_codes(self) -> bool:
        """Whether images may be codes to the policy."""
        kinds = (kind for family in self.families for kind in family.LAYOUTS.values())
        return any(kind.needs_vq for kind in kinds)

    def tiling(self, network: Any) -> Any:
        """What knows how many positions the vision tower of the policy gives an image: of a size in
        pixels `rows(width, height)`, and of the largest `most_rows`."""
        if network.vision is not None:
            return network.vision.tiling
        if not (here := known_directories(self.model.path)):
            return outline_reader((self.config or {})["vision_config"], self.model)
        return load_reader(here[-1], self.model)

    @cached_property
    def vq(self) -> str | None:
        """The image tokenizer, see `own_vq`."""
        return own_vq(self.model)

    @cached_property
    def patch(self) -> int | None:
        """Side in pixels of what a token of an image shows; None where it is not known here."""
        count = getattr(find_family(self.config or {}), "count_patch", None)
        if count is not None:
            return count(self.config)
        if self.vq == self.model.path:
            return PUBLIC_PATCH
        known = {} if self.vq == PUBLIC_VQ else known_config(self.vq or "")
        if known is None:
            return None
        with torch.device("meta"):
            return build_vq(known).downsample

    @property
    def frames(self) -> int:
        """Latent frames of a video that is written; 1 of an image."""
        count = getattr(find_family(self.config or {}), "count_frames", None)
        return 1 if count is None else count(self.config, self.model.num_frames)

    def count_image_tokens(self, written: bool = True) -> int:
        """Tokens of an image or video that is written, or else of an image in a prompt, from the
        sizes asked for or else `config`."""
        model, raw, patch = self.model, self.config or {}, self.patch or PUBLIC_PATCH
        if model.image_size is None:
            side = math.isqrt(getattr(find_family(raw), "count_codes", mmada.count_codes)(raw))
        else:
            side = model.image_size // patch
        if not written:
            return side**2
        chosen = (model.image_height, model.image_width)
        written_sides = (side if pixels is None else pixels // patch for pixels in chosen)
        return self.frames * math.prod(written_sides)


def own_vq(model: ModelConfig) -> str | None:
    """The image tokenizer of the policy, where `vq` leaves it to the checkpoint the one that this
    names or holds. Of a checkpoint that is not here it is the checkpoint itself."""
    if model.vq != OWN_VQ:
        return model.vq
    other = model.path if model.path.startswith(HOLDERS) else PUBLIC_VQ
    return find_vq(known_directories(model.path)) or other


def outline_policy(raw: Mapping[str, Any]) -> Network:
    """The network of a config.json on the meta device."""
    with torch.device("meta"):
        return get_family(raw).network(raw)


def count_weights(network: Network) -> int:
    """Parameters of a network, and of what is loaded beside it."""
    return sum(p.numel() for p in network.parameters()) + sum(network.count_parts().values())


def count_columns(task: str, network: Network, raw: Mapping[str, Any]) -> int:
    """Columns of the logits of a task: image codes, or the whole vocabulary; 0 without tokens."""
    if network.vocab_size == 0:
        return 0
    return raw.get("codebook_size", CODES) if writes_images(task) else network.vocab_size
