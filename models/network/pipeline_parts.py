"""The frozen parts of a diffusers pipeline beside its network: text encoders and decoder."""

from __future__ import annotations

import hashlib
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

VAE = "vae"
KEPT = 256
"""Prompts whose encodings are kept in memory: 700 MB in bfloat16 at SD3's width."""
Encode = Callable[[Any, str | list[str], torch.device], dict[str, Tensor]]
"""From a pipeline, a text and a device to what the network is conditioned on, [1, …] each; from a
list of texts, [B, …]."""


class PipelineParts:
    """Text encoders, read when a text is first encoded, and the decoder, read when latents are
    first decoded. Neither is part of any state, and neither is trained.

    Texts are encoded alone and once, so what they give does not depend on the others of a batch.

    Args:
        folder: of a pipeline.
        dtype: of the text encoders; the decoder is float32.
        device: where they compute.
        left_out: names of parts that are not read.
        store: folder in which encodings are kept by content over runs; None keeps none.

    Attributes:
        own: text encoders by name that take the place of stored ones.
    """

    def __init__(
        self,
        folder: Path,
        dtype: torch.dtype,
        device: torch.device,
        left_out: Sequence[str] = (),
        store: str | None = None,
    ) -> None:
        self.folder, self.dtype, self.device, self.left_out = folder, dtype, device, left_out
        self.store = None if store is None else Path(store).expanduser()
        self.own: dict[str, nn.Module] = {}
        self.kept: dict[tuple[str, ...], dict[str, Tensor]] = {}
        self._encoders: Any = None
        self._decoder: Any = None

    def __deepcopy__(self, _: Any) -> PipelineParts:
        return self  # copies of a network share them

    @torch.no_grad()
    def encode(self, text: str, encode: Encode, *names: str) -> dict[str, Tensor]:
        """Encode a text, once while it is among the last `KEPT`, or where it is in the store.

        Args:
            encode: how a text is encoded.
            names: what an encoding depends on beside the text, such as a length.

        Returns:
            Tensors [1, …] by keyword of the network, on the CPU.
        """
        key = (*names, text)
        if key not in self.kept:
            file = None if self.store is None else self.store / f"{self._name(key)}.safetensors"
            known = file is not None and file.is_file()
            self.kept[key] = load_file(file) if known else self._compute(text, encode, file)
            if len(self.kept) > KEPT:
                del self.kept[next(iter(self.kept))]
        return self.kept[key]

    def _compute(self, text: str, encode: Encode, file: Path | None) -> dict[str, Tensor]:
        found = encode(self.encoders, text, self.device)
        found = {name: tensor.cpu().contiguous() for name, tensor in found.items()}
        if file is not None:
            file.parent.mkdir(parents=True, exist_ok=True)
            aside = file.with_suffix(f".{os.getpid()}")
            save_file(found, aside)
            aside.rename(file)
        return found

    def _name(self, key: tuple[str, ...]) -> str:
        """Of an encoding, by all that it is made from."""
        made_from = "\x1f".join([*self._contents, str(self.dtype), *self.left_out, *key])
        return hashlib.sha256(made_from.encode()).hexdigest()

    @cached_property
    def _contents(self) -> list[str]:
        """Digests of the files of tokenizers and text encoders."""
        digests = []
        for path in sorted(self.folder.glob("t*/*")):
            if path.parent.name.startswith(("tokenizer", "text_encoder")) and path.is_file():
                digest = hashlib.sha256()
                with path.open("rb") as file:
                    while block := file.read(2**24):
                        digest.update(block)
                digests.append(digest.hexdigest())
        return digests

    @property
    def encoders(self) -> Any:
        """The pipeline with its text encoders and tokenizers, and nothing else."""
        if self._encoders is None:
            self._encoders = self._load(("transformer", VAE, *self.left_out), **self.own)
            self._encoders.to(self.device)
        return self._encoders

    def unload(self) -> None:
        """Free the text encoders; they are read again for a text that is not known."""
        self._encoders = None

    @torch.no_grad()
    def decode(self, latents: Tensor) -> list[Any]:
        """Finished latents [B, C, H, W] -> images, decoded in float32, one at a time."""
        vae, scale = self.decoder.vae, self.decoder.vae.config
        shifted = latents.float().to(self.device) / scale.scaling_factor + (scale.shift_factor or 0)
        pixels = [vae.decode(each[None]).sample for each in shifted]
        return self.decoder.image_processor.postprocess(torch.cat(pixels))

    @property
    def decoder(self) -> Any:
        """The pipeline with its autoencoder, and nothing else."""
        if self._decoder is None:
            texts = [path.name for path in self.folder.glob("t*_*")]
            self._decoder = self._load(("transformer", "tokenizer", *texts))
            self._decoder.to(self.device)
        return self._decoder

    @torch.no_grad()
    def encode_images(self, pixels: Tensor) -> Tensor:
        """Pixels [B, 3, H, W] in [-1, 1] -> latents [B, C, h, w] float32, what `decode` is given:
        means of the posterior, encoded one at a time."""
        vae, scale = self.decoder.vae, self.decoder.vae.config
        means = [vae.encode(each[None].to(self.device)).latent_dist.mode() for each in pixels]
        return (torch.cat(means) - (scale.shift_factor or 0)) * scale.scaling_factor

    def _load(self, left_out: Sequence[str], **own: nn.Module) -> Any:
        from diffusers import DiffusionPipeline

        from mmrl.models.families.pipeline import list_absent  # families import this module

        left_out = {*left_out, *list_absent(self.folder)}  # diffusers asks for SD3's T5 by name
        kinds: Any = {VAE: torch.float32, "default": self.dtype}
        try:
            with _without_bars():
                none: dict[str, Any] = dict.fromkeys(left_out)
                found = DiffusionPipeline.from_pretrained(
                    self.folder, torch_dtype=kinds, use_safetensors=True, **{**none, **own}
                )
        except Exception as error:  # diffusers, transformers and safetensors raise many kinds
            raise ValueError(
                f"the parts of '{self.folder}' cannot be read ({error}); copy or download it again"
            ) from error
        for part in found.components.values():
            if isinstance(part, nn.Module):
                part.eval().requires_grad_(False)
        return found


@contextmanager
def _without_bars() -> Iterator[None]:
    """Let the libraries show neither progress bars nor a remark on the name that older
    versions have for `dtype`."""
    from diffusers.utils import logging as diffusers_logging
    from transformers.utils import logging as transformers_logging

    shown = [x for x in (diffusers_logging, transformers_logging) if x.is_progress_bar_enabled()]
    for each in shown:
        each.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            yield
    finally:
        for each in shown:
            each.enable_progress_bar()


def count_parameters(config: Mapping[str, Any], left_out: Sequence[str] = ()) -> int:
    """Parameters of the text encoders and the autoencoder of a pipeline, see `read_pipeline`."""
    total = 0
    for name, sizes in config.items():
        if (name == VAE or name.startswith("text_encoder")) and name not in left_out:
            with torch.device("meta"):
                total += sum(p.numel() for p in build_part(sizes).parameters())
    return total


def build_part(sizes: Mapping[str, Any]) -> nn.Module:
    """A part of a pipeline by its config.json, with weights from the global generator."""
    import diffusers
    import transformers

    if "_class_name" in sizes:
        return getattr(diffusers, sizes["_class_name"]).from_config(dict(sizes))
    kind = getattr(transformers, sizes["architectures"][0])
    return kind(kind.config_class(**sizes))
