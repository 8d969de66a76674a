"""Rectified flow matching of a pipeline that denoises latents, as Stable Diffusion 3 is trained.

    x = (1 - sigma) x0 + sigma e,    loss = mean (v(x, sigma, text) - (e - x0))^2

with x0 the latent of an image, e Gaussian noise and the mean over all numbers of all latents
(arXiv 2209.03003, 2403.03206). Log(sigma / (1 - sigma)) is normal or sigma uniform, then shifted.
The quantiles of the sigmas are a sequence of steps of the golden ratio: those of any stretch of
examples are spread evenly, where independent ones would add to the noise of the gradient. Latents
are means of the autoencoder's posterior. What is drawn for an example depends on its position in
the data alone, so it is the same for every number of processes and size of micro-batches.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from accelerate.utils import send_to_device
from torch import Generator, Tensor, nn

from mmrl.config import check
from mmrl.data.images import LazyImage
from mmrl.data.stream import StoredRows, stream_positions
from mmrl.models.layouts.layout_config import LayoutConfig
from mmrl.models.layouts.text_to_latents import TextToLatents
from mmrl.models.network.pipeline_parts import VAE
from mmrl.models.network.trained_text import TextAndNetwork, list_trained, new_encoders
from mmrl.models.network.velocity_network import VelocityNetwork
from mmrl.models.policy import Policy
from mmrl.models.public_code import Source
from mmrl.models.source import find_directory, find_whole
from mmrl.models.weights import resolve_dtype
from mmrl.objectives.image_pairs import Pair, describe_pairs, open_pairs
from mmrl.objectives.options import FlowConfig
from mmrl.objectives.policy_start import Items, PolicyObjective, choose_trained, outline_policy
from mmrl.pretrained.known import find_here
from mmrl.randomness import generator, stable_seed
from mmrl.runtime.interrupt import check as check_stop
from mmrl.types import Prompt

GOLDEN = (5**0.5 - 1) / 2
EVALUATED = (0.1, 0.3, 0.5, 0.7, 0.9)
"""Noise levels of an evaluation."""


class NoisyBatch(NamedTuple):
    """B examples between noise and clean.

    Attributes:
        inputs: of the network by keyword: `latents` [B, C, (T,) H, W] float32, `sigma` [B]
            float32, and what texts condition, or `texts` where their encoders are trained.
        velocity: [B, C, (T,) H, W] float32, noise minus clean latents.
    """

    inputs: dict[str, Any]
    velocity: Tensor


class Flow(PolicyObjective[FlowConfig]):
    """The flow matching loss of a pipeline."""

    Config = FlowConfig

    def _build(self, device: torch.device | str, deferred: bool) -> None:
        config, seed = self.config, self.seed
        allowed = "false where processes share one copy of the weights"
        alone = not (deferred and config.train_text_encoder)
        check(alone, "objective.train_text_encoder", True, allowed)
        self.data: dict[str, Items] = {"": open_pairs(config, seed)}
        self.held_out = read_held_out(config)
        self.policy = outline_start(config)
        chosen, folder = self.policy.network.part_options, find_directory(config.model)
        network = self.load_start(device, deferred)
        network.part_options = chosen
        network.load_parts(find_whole(folder), resolve_dtype(config.dtype), device)
        self.task = replace(find_task(self.policy), network=network)
        if config.new_weights:
            network.source = Source(config.model, folder)
        choose_trained(network, config, seed)
        self.whole: nn.Module = self._with_text(network) if config.train_text_encoder else network
        self.module = self.whole
        self.known: dict[bytes, Tensor] = {}

    @staticmethod
    def outline(config: FlowConfig) -> tuple[nn.Module | None, str]:
        """The network without weights, with the text encoders that are trained, and how many pairs
        there are."""
        held_out = f", {len(read_held_out(config))} held out" if config.eval_data else ""
        said = describe_pairs(config) + held_out
        if find_here("objective.model", config.model) is None:
            return None, said
        policy = outline_start(config)
        network: Any = policy.network
        choose_trained(network, config)
        if not config.train_text_encoder:
            return network, said
        names = list_trained(network.public_config)
        with torch.device("meta"):
            encoders = new_encoders(network.public_config, names, 0)
        return TextAndNetwork(network, encoders, find_task(policy).encode_text), said

    def batch(self, step: int, rank: int, world_size: int) -> NoisyBatch:
        """This rank's examples of micro-batch `step`."""
        places = stream_positions(step, rank, world_size, self.batch_size)
        sigma = draw_sigmas(self.config, self.seed, places)
        draws = [generator(self.seed, "example", place) for place in places]
        dropped = self.config.cond_dropout_prob
        return self._noise(self.data[""].take(places), draws, sigma, dropped)

    def loss(self, batch: NoisyBatch) -> tuple[Tensor, dict[str, Tensor]]:
        """The mean squared error of the velocity, and no other metrics."""
        predicted = self.module(**batch.inputs).float()
        return (predicted - batch.velocity).square().mean(), {}

    def save(self, directory: Path) -> None:
        """Write the pipeline, or an adapter of its network."""
        super().save(directory)
        if isinstance(self.whole, TextAndNetwork):
            self.whole.save_encoders(directory, resolve_dtype(self.config.save_dtype))

    def evaluate(self, directory: Path, step: int) -> dict[str, float]:
        """The loss of held-out pairs at each of `EVALUATED`, and the mean of these; no text is
        dropped, and the noise is the same at every evaluation."""
        if not self.held_out:
            return {}
        losses = {f"eval/loss_{sigma}": self._evaluate(sigma) for sigma in EVALUATED}
        return {**losses, "eval/loss": sum(losses.values()) / len(losses)}

    def _evaluate(self, sigma: float) -> float:
        total = 0.0
        for first in range(0, len(self.held_out), self.batch_size):
            pairs = self.held_out[first : first + self.batch_size]
            draws = [generator(self.seed, "evaluation", first + n) for n in range(len(pairs))]
            batch = self._noise(pairs, draws, torch.full((len(pairs),), sigma), dropped=0.0)
            there: Any = send_to_device(batch, self.policy.device)
            total += float(self.loss(there)[0]) * len(pairs) / len(self.held_out)
            check_stop()
        return total

    def _noise(
        self, pairs: Sequence[Pair], draws: Sequence[Generator], sigma: Tensor, dropped: float
    ) -> NoisyBatch:
        """Pairs with noise of `sigma` [B], and empty texts for a share of them."""
        clean = torch.stack([self._encode(pair.image) for pair in pairs])
        noise = torch.stack([torch.randn(clean.shape[1:], generator=draw) for draw in draws])
        empty = [float(torch.rand((), generator=draw)) < dropped for draw in draws]
        texts = ["" if gone else pair.text for gone, pair in zip(empty, pairs, strict=True)]
        latents = clean.lerp(noise, sigma.view(-1, *[1] * (clean.ndim - 1)))
        inputs: dict[str, Any] = {"latents": latents}
        if isinstance(self.whole, TextAndNetwork):
            inputs["texts"] = texts
        else:
            encoded = [self.task.encode(text) for text in texts]
            inputs |= {key: torch.cat([each[key] for each in encoded]) for key in encoded[0]}
        return NoisyBatch({**inputs, "sigma": sigma}, noise - clean)

    def _encode(self, image: LazyImage) -> Tensor:
        """[C, H, W] float32 on the CPU, the latent of an image; [C, T, H, W] of a video."""
        latent = self.known.get(image.digest)
        if latent is None:
            form = str(self.task.size) + (f" x {n}" if (n := self.task.frames) > 1 else "")
            key = type(self.task.network).__name__, image.digest.hex(), form
            compute = partial(self._compute_latent, image)
            latent = self.task.parts.recall([VAE], key, compute)["latent"]
            if self.config.keep_latents:
                self.known[image.digest] = latent
        return latent

    def _compute_latent(self, image: LazyImage) -> dict[str, Tensor]:
        task = self.task
        pixels = task.fit_pixels(image.open_frames(task.frames))[None]
        return {"latent": task.parts.encode_images(pixels, task.network.from_encoder)[0]}

    def _with_text(self, network: VelocityNetwork) -> TextAndNetwork:
        """The network with its text encoders, which are new where its weights are."""
        parts, names = self.task.parts, list_trained(network.public_config)
        if self.config.new_weights:
            seed = stable_seed(self.seed, "text encoders")
            parts.own = new_encoders(network.public_config, names, seed)
        encoders = {name: getattr(parts.encoders, name) for name in names}
        return TextAndNetwork(network, encoders, self.task.encode_text)


def outline_start(config: FlowConfig) -> Policy:
    """The policy without weights.

    Raises:
        ConfigError: of a checkpoint that denoises no latents, or has no text encoder to be trained.
        ValueError: an image of no whole number of tokens; see also `outline_policy`.
    """
    options = LayoutConfig(
        max_prompt_length=config.max_prompt_length,
        image_size=config.image_size,
        num_frames=config.num_frames,
        encodings_dir=config.encodings_dir,
    )
    policy = outline_policy(config, options)
    fits = isinstance(policy.network, VelocityNetwork)
    allowed = "the directory of a diffusers pipeline that denoises latents"
    check(fits, "objective.model", config.model, allowed)
    trains = config.train_text_encoder
    fits = not trains or bool(list_trained(policy.network.public_config))
    allowed = "false for a pipeline without text encoders of CLIP, or UMT5 without dropout"
    check(fits, "objective.train_text_encoder", trains, allowed)
    find_task(policy).shape_of(Prompt("objective.image_size", "", ""))
    return policy


def find_task(policy: Policy) -> TextToLatents:
    """The layout of a pipeline."""
    task = next(iter(policy.layouts.values()))
    assert isinstance(task, TextToLatents)
    return task


def read_held_out(config: FlowConfig) -> Sequence[Pair]:
    """The pairs of `eval_data`; none where it is empty."""
    if not config.eval_data:
        return ()
    rows = open_pairs(replace(config, data=config.eval_data, data_split=None, streaming=False), 0)
    return rows.take(range(len(rows.items))) if isinstance(rows, StoredRows) else ()


def draw_sigmas(config: FlowConfig, seed: int, places: Sequence[int]) -> Tensor:
    """Noise levels [len(places)] float32 of examples by their position in the data."""
    start = float(torch.rand((), generator=generator(seed, "sigmas")))
    quantiles = torch.tensor([(start + place * GOLDEN) % 1 for place in places], dtype=torch.double)
    sigma = quantiles
    if config.sigmas == "logit_normal":
        normal = torch.special.ndtri(quantiles.clamp(1e-6, 1 - 1e-6))
        sigma = torch.sigmoid(config.logit_mean + config.logit_std * normal)
    return (config.shift * sigma / (1 + (config.shift - 1) * sigma)).float()
