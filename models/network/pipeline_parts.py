"""The frozen parts of a diffusers pipeline beside its network: text encoders and decoder."""

from __future__ import annotations

import hashlib
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from inspect import signature
from pathlib import Path
from typing import Any

import torch
from huggingface_hub.utils.sha import sha_fileobj
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from mmrl.config.settings_file import read_settings_file
from mmrl.models.source import INDEX, list_folders, read_index
from mmrl.models.weights import check_finite, list_first, read_headers

VAE, ENCODER = "vae", ("text_encoder", "image_encoder")
READERS = ("tokenizer", "processor", "image_processor", *ENCODER)
"""How the names of parts begin that read a prompt, and of those with weights."""
ENCODERS, AUTOENCODER = "text encoders", "autoencoder"
"""What plans call the parts of a pipeline."""
KEPT = 256
"""Prompts whose encodings are kept in memory: 700 MB in bfloat16 at SD3's width."""
Encode = Callable[[Any, list[str], torch.device], dict[str, Tensor]]
"""From a pipeline, B texts and a device to what the network is conditioned on, [B, …] each."""
Scale = Callable[[Tensor, Any], Tensor]
"""From latents and the autoencoder to latents on another scale."""


class PipelineParts:
    """Text encoders, read when a text is first encoded, and the decoder, read when latents are
    first decoded. Neither is part of any state, and neither is trained.

    Texts are encoded alone and once, so what they give does not depend on the others of a batch.

    Args:
        folder: of a pipeline.
        dtype: of the text encoders; the decoder is float32.
        device: where they compute.
        left_out: names of parts that are not read.
        store: folder in which encodings and latents are kept by content over runs; None keeps none.
        kept_on: device of the encodings.
        tiled: whether the autoencoder works tile by tile, with less memory.

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
        kept_on: torch.device | str = "cpu",
        tiled: bool = False,
    ) -> None:
        self.folder, self.dtype, self.device, self.left_out = folder, dtype, device, left_out
        self.kept_on, self.tiled = kept_on, tiled
        self.store = None if store is None else Path(store).expanduser()
        self.own: dict[str, nn.Module] = {}
        self.kept: dict[tuple[str, ...], dict[str, Tensor]] = {}
        self.digests: dict[str, list[str]] = {}
        self._encoders: Any = None
        self._decoder: Any = None

    def __deepcopy__(self, _: Any) -> PipelineParts:
        return self  # copies of a network share them

    @torch.no_grad()
    def encode(self, text: str, encode: Encode, *names: str) -> dict[str, Tensor]:
        """Encode a text, once while it is among the last `KEPT`, or where it is in the store:
        tensors [1, …] by keyword of the network, on `kept_on`. `names` are what an encoding depends
        on beside the text, such as a length."""
        key = (*names, text)
        if key not in self.kept:
            made_from = [str(self.dtype), *self.left_out, *key]
            self.kept[key] = self.recall(
                self._texts, made_from, partial(self._compute, text, encode)
            )
            if len(self.kept) > KEPT:
                del self.kept[next(iter(self.kept))]
        return self.kept[key]

    def _compute(self, text: str, encode: Encode) -> dict[str, Tensor]:
        with torch.autocast(self.device.type, enabled=False):
            return encode(self.encoders, [text], self.device)

    @torch.no_grad()
    def recall(
        self, parts: Sequence[str], key: Sequence[str], compute: Callable[[], dict[str, Tensor]]
    ) -> dict[str, Tensor]:
        """What parts of the pipeline, of whose files the contents count, make of a text or an
        image: from the store, or computed and put there; tensors by name, on `kept_on`. `key` is
        all else that they are made from."""
        file = None
        if self.store is not None:
            contents = [digest for part in parts for digest in self._digest(part)]
            name = hashlib.sha256("\x1f".join([*contents, *key]).encode()).hexdigest()
            file = self.store / name[:2] / f"{name}.safetensors"
            if file.is_file():
                return load_file(file, str(self.kept_on))
        found = {name: x.to(self.kept_on).contiguous() for name, x in compute().items()}
        if file is not None:
            file.parent.mkdir(parents=True, exist_ok=True)
            aside = file.with_suffix(f".{os.getpid()}")
            save_file(found, aside)
            aside.rename(file)
        return found

    def _digest(self, part: str) -> list[str]:
        """Digests of the files of a part, each read once."""
        if part not in self.digests:
            found = []
            for path in filter(Path.is_file, sorted((self.folder / part).iterdir())):
                with path.open("rb") as file:
                    found.append(sha_fileobj(file).hex())
            self.digests[part] = found
        return self.digests[part]

    @property
    def _texts(self) -> list[str]:
        """Names of the parts that read prompts."""
        named = list_folders(self.folder)
        return [name for name in named if name.startswith(READERS) and name not in self.left_out]

    @property
    def encoders(self) -> Any:
        """The pipeline with its text encoders and tokenizers, and nothing else."""
        if self._encoders is None:
            self._encoders = self._load(self._texts, **self.own)
        return self._encoders

    def unload(self) -> None:
        """Free the text encoders; they are read again for a text that is not known."""
        self._encoders = None

    def move(self, device: torch.device | str) -> None:
        """Move the text encoders and the autoencoder, those that are read."""
        for pipeline in filter(None, (self._encoders, self._decoder)):
            for part in pipeline.components.values():
                if isinstance(part, nn.Module):
                    part.to(device)

    @torch.no_grad()
    def decode(self, latents: Tensor, scale: Scale) -> list[Any]:
        """Finished latents [B, …] -> images, decoded in float32, one at a time; `scale` gives what
        the autoencoder decodes."""
        scaled = scale(latents.float().to(self.device), self.decoder.vae)
        pixels = [self._decode_one(each) for each in scaled]
        return self.decoder.image_processor.postprocess(torch.stack(pixels))

    @torch.no_grad()
    def decode_frames(self, latents: Tensor, scale: Scale) -> list[Any]:
        """The same of latents of videos [B, C, t, h, w]: frames [T, H, W, 3] uint8 of each."""
        scaled = scale(latents.float().to(self.device), self.decoder.vae)
        found = (self._decode_one(each).movedim(0, -1) for each in scaled)
        return [((x / 2 + 0.5).clamp(0, 1) * 255).round().byte().cpu().numpy() for x in found]

    def render(self, latents: Tensor, scale: Scale) -> list[Tensor]:
        """What is decoded, as pixels [3, H, W] float32 in [0, 1] with the gradient of the latents,
        [3, T, H, W] of a video; each is decoded again in the backward pass."""
        with torch.autocast(self.device.type, enabled=False):
            scaled = scale(latents.float().to(self.device), self.decoder.vae)
            pixels = [checkpoint(self._decode_one, each, use_reentrant=False) for each in scaled]
        return [(each / 2 + 0.5).clamp(0, 1) for each in pixels]

    def _decode_one(self, latent: Tensor) -> Tensor:
        """[3, H, W] around 0, of a scaled latent; [3, T, H, W] of that of a video."""
        vae = self.decoder.vae
        pixels = vae.decode(add_frame(latent, vae)).sample
        return pixels[0] if latent.ndim == 4 else pixels.flatten(1, -3)[0]

    @property
    def decoder(self) -> Any:
        """The pipeline with its autoencoder, and nothing else."""
        if self._decoder is None:
            self._decoder = self._load([VAE])
            if self.tiled:
                self._decoder.vae.enable_tiling()
        return self._decoder

    @torch.no_grad()
    def encode_images(self, pixels: Tensor, scale: Scale) -> Tensor:
        """Pixels [B, 3, H, W] in [-1, 1], or [B, 3, T, H, W] of videos -> latents float32, what
        `decode` is given: means of the posterior where there is one, encoded one at a time; `scale`
        is the inverse of that of `decode`."""
        vae, is_video = self.decoder.vae, pixels.ndim == 5
        found = [vae.encode(add_frame(each.to(self.device), vae)) for each in pixels]
        means = (x.latent if "latent" in x else x.latent_dist.mode() for x in found)
        return scale(torch.cat([x if is_video else x.flatten(1, -3) for x in means]), vae)

    def _load(self, names: Sequence[str], **own: nn.Module) -> Any:
        """The pipeline with these parts, `own` among them, and nothing else."""
        import diffusers

        # of the class itself: DiffusionPipeline's reads the transformers that a pipeline may lack
        kind = getattr(diffusers, read_settings_file(self.folder / INDEX)["_class_name"])
        parts: dict[str, Any] = {
            name: None for name in read_index(self.folder) if name not in names
        }
        kinds: Any = {VAE: torch.float32, "default": self.dtype}
        try:
            with _without_bars():
                for name in names:
                    if name.startswith(ENCODER):
                        parts[name] = own.get(name) or self._read_encoder(name)
                found = kind.from_pretrained(
                    self.folder, torch_dtype=kinds, use_safetensors=True, **parts
                )
        except Exception as error:  # diffusers, transformers and safetensors raise many kinds
            raise ValueError(
                f"the parts of '{self.folder}' cannot be read ({error}); copy or download it again"
            ) from error
        for part in found.components.values():
            if isinstance(part, nn.Module):
                part.eval().requires_grad_(False)
        return found.to(self.device)

    def _read_encoder(self, name: str) -> nn.Module:
        import transformers

        folder, kind = self.folder / name, getattr(transformers, read_index(self.folder)[name][1])
        read_headers(folder)
        model, report = kind.from_pretrained(folder, dtype=self.dtype, output_loading_info=True)
        if report["missing_keys"]:  # which transformers draws at random
            raise ValueError(f"{name} lacks {list_first(sorted(report['missing_keys']))}")
        for key, tensor in model.named_parameters():
            check_finite(tensor, folder, key)
        return model


def add_frame(image: Tensor, vae: Any) -> Tensor:
    """[1, C, …] of pixels or latents [C, H, W], or of a video [C, T, H, W]; an image is a video of
    one frame for an autoencoder of videos, whose output then has the frame among its channels once
    these are flattened."""
    if image.ndim == 4:
        return image[None]
    return image[None, :, None] if "temperal_downsample" in vae.config else image[None]


@contextmanager
def _without_bars() -> Iterator[None]:
    """Let the libraries show neither progress bars nor a remark on the name that older
    versions have for `dtype`."""
    from diffusers.utils import logging as diffusers_logging
    from transformers.utils import logging as transformers_logging

    with ExitStack() as after, warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        for each in (diffusers_logging, transformers_logging):
            if each.is_progress_bar_enabled():
                each.disable_progress_bar()
                after.callback(each.enable_progress_bar)
        yield


def count_parameters(config: Mapping[str, Any], left_out: Sequence[str] = ()) -> dict[str, int]:
    """Parameters of the text encoders and the autoencoder of a pipeline, see `read_pipeline`."""
    found: dict[str, int] = {ENCODERS: 0, AUTOENCODER: 0}
    for name, sizes in config.items():
        if (name == VAE or name.startswith(ENCODER)) and name not in left_out:
            with torch.device("meta"):
                number = sum(p.numel() for p in build_part(sizes).parameters())
            found[AUTOENCODER if name == VAE else ENCODERS] += number
    return found


def build_network(name: str, config: Mapping[str, Any]) -> Any:
    """A network of diffusers by the name of its class, at the sizes that a config has of it."""
    import diffusers

    kind = getattr(diffusers, name)
    return kind(**{key: config[key] for key in signature(kind).parameters if key in config})


def build_part(sizes: Mapping[str, Any]) -> nn.Module:
    """A part of a pipeline by its config.json, with weights from the global generator."""
    import diffusers
    import transformers

    if "_class_name" in sizes:
        return getattr(diffusers, sizes["_class_name"]).from_config(dict(sizes))
    kind = getattr(transformers, sizes["architectures"][0])
    return kind(kind.config_class(**sizes))
