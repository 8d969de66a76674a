"""Images from prompts: a captioned grid and an animation of the denoising.

    python scripts/generate_images.py prompt="a red circle and a blue square"
    python scripts/generate_images.py model=Gen-Verse/MMaDA-8B-MixCoT vq=showlab/magvitv2 \
        prompt="a fox in the snow" image_size=512 cfg_scale=3.5 steps=50 name=maskgit

Writes `grid.png`, `denoising.gif` and `denoising.png` (one row per image, the steps side by side)
into `out`, all with the prompts above their images.
The animation is drawn from the step at which each token was written: the finished image, with the
cells that are still masked after a step in grey.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeVar

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from PIL import Image  # noqa: E402

from mmrl.config import check, load_config, to_yaml  # noqa: E402
from mmrl.config.command import Usage, run_command  # noqa: E402
from mmrl.generation.masked.samplers.loop_config import check_blocks  # noqa: E402
from mmrl.models.image_tokenizers import OWN_VQ  # noqa: E402
from mmrl.pretrained.model_config import ModelConfig, policy_options  # noqa: E402
from mmrl.randomness import generator  # noqa: E402
from mmrl.rollouts.frames import draw_frames  # noqa: E402
from mmrl.run.image_grid import (  # noqa: E402
    BLACK,
    Cell,
    draw_heading,
    enlarge,
    page,
    scale,
    stack,
)
from mmrl.samplers import SamplerConfig, sample  # noqa: E402
from mmrl.types import Prompt  # noqa: E402

if TYPE_CHECKING:
    from mmrl.models import Policy

T = TypeVar("T")
TASK = "text_to_image"
CHECKPOINTS = ROOT / "datasets" / "shapes" / "checkpoints"


@dataclass(kw_only=True)
class Config(SamplerConfig):
    """Sampler settings, model, prompts and output."""

    CHOICES = SamplerConfig.CHOICES

    model: str = str(CHECKPOINTS / "mmada")
    """Path or hub id."""
    vq: str = OWN_VQ
    """Path or hub id of its image tokenizer; a checkpoint on this machine that holds its own takes
    that in place of the default."""
    prompt: str = ""
    """One prompt, or several separated by `|`."""
    prompts: str = ""
    """A prompt file instead."""
    num_images: int = 4
    """Images per prompt."""
    limit: int = 8
    """At most this many prompts of a file, taken at even distances."""
    batch_size: int = 16
    """Images sampled at once; changes speed and memory only."""
    max_prompt_length: int = 256
    """Longest prompt in tokens; longer ones are cut."""
    image_size: int | None = None
    """Side of the images in pixels; null follows the checkpoint."""
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    """Of the weights."""
    device: str = "auto"
    """`auto` takes the GPU if there is one."""
    seed: int = 0
    """Seed of every draw."""
    out: str = "runs/images"
    """Folder of the images."""
    cell: int = 128
    """Smallest side of an image in the grid, and side of one in the animation, in pixels."""
    dry_run: bool = False
    """Check everything, print the plan, and exit."""

    def __post_init__(self) -> None:
        super().__post_init__()
        one = bool(self.prompt.strip(" |")) != bool(self.prompts)
        check(one, "prompt", self.prompt, "a text, or empty when prompts names a file")
        for key in ("num_images", "limit", "batch_size", "cell"):
            check(getattr(self, key) >= 1, key, getattr(self, key), "at least 1")

    @property
    def policy(self) -> ModelConfig:
        """The settings of the policy."""
        return ModelConfig(
            path=self.model,
            vq=self.vq,
            dtype=self.dtype,
            max_prompt_length=self.max_prompt_length,
            image_size=self.image_size,
        )


USAGE = Usage("python scripts/generate_images.py", __doc__, Config)


def generate(config: Config) -> list[Path]:
    """Sample and write the images; return their paths."""
    from mmrl.models import load_policy
    from mmrl.runtime.computation import find_device

    prompts = checked(config)
    policy = load_policy(**policy_options(config.policy), device=find_device(config.device))
    images, frames = _sampled(policy, prompts, config)
    out = Path(config.out)
    out.mkdir(parents=True, exist_ok=True)
    paths = [out / "grid.png", out / "denoising.gif", out / "denoising.png"]
    captions = [prompt.text for prompt in prompts]

    def draw(shown: Sequence[Image.Image]) -> Image.Image:
        cells = [Cell(enlarge(image, config.cell)) for image in shown]
        return captioned(by_prompt(cells, config), captions, config.num_images)

    draw(images).save(paths[0])
    animation = [draw(step) for step in zip(*frames, strict=True)]
    times = [250] * (len(animation) - 1) + [1500]
    animation[0].save(paths[1], save_all=True, append_images=animation[1:], duration=times, loop=0)
    still(by_prompt(frames, config), captions).save(paths[2])
    return paths


def checked(config: Config) -> list[Prompt]:
    """The prompts, once everything is checked that is known before the policy loads."""
    from mmrl.pretrained.checks import check_checkpoints, check_task
    from mmrl.pretrained.known import Known
    from mmrl.run.run_lock import check_writable
    from mmrl.runtime.computation import find_device

    check_writable("out", Path(config.out))
    known = Known.read(config.policy)
    check_checkpoints(known)
    tokens = check_task(known, "text_to_image", "to write images")
    if tokens is not None:
        check_blocks(config, tokens)
    find_device(config.device)
    return _prompts(config)


def plan_of(config: Config) -> str:
    """What would be done; nothing is loaded."""
    prompts = checked(config)
    rows = len(prompts) * config.num_images
    return (
        f"{to_yaml(config)}plan\n  {config.num_images} images of each of {len(prompts)} prompts, in"
        f" {-(-rows // config.batch_size)} batches of {config.steps} {config.name} steps\n"
    )


def _sampled(
    policy: Policy, prompts: list[Prompt], config: Config
) -> tuple[list[Image.Image], list[list[Image.Image]]]:
    """Finished images, and the frames of each."""
    rows = [(prompt, n) for prompt in prompts for n in range(config.num_images)]
    images: list[Image.Image] = []
    frames: list[list[Image.Image]] = []
    for first in range(0, len(rows), config.batch_size):
        chunk = rows[first : first + config.batch_size]
        some = [prompt for prompt, _ in chunk]
        draws = [generator(config.seed, "images", prompt.text, n) for prompt, n in chunk]
        rollout = sample(policy, policy.canvas(some), config, draws)
        decoded = list(policy.decode(rollout.canvas, some))
        for row, image in enumerate(decoded):
            small = scale(image, config.cell)
            frames.append(draw_frames(policy, rollout, row, some[row], small, config.steps))
        images += decoded
    return images, frames


def by_prompt(rows: Sequence[T], config: Config) -> list[Sequence[T]]:
    """What belongs to one prompt after the other."""
    return [rows[n : n + config.num_images] for n in range(0, len(rows), config.num_images)]


def captioned(
    groups: Sequence[Sequence[Cell]], captions: Sequence[str], columns: int
) -> Image.Image:
    """The cells of each group in rows of so many, its caption above them."""
    parts = []
    for cells, text in zip(groups, captions, strict=True):
        table = page(cells, columns)
        parts += [draw_heading(text, table.width), table]
    return stack(parts)


def still(groups: Sequence[Sequence[list[Image.Image]]], captions: Sequence[str]) -> Image.Image:
    """The caption of a group, then one row per image of it; ten of its steps side by side, the
    first and the last among them."""
    last = len(groups[0][0]) - 1
    steps = sorted({round(n * last / 9) for n in range(10)})
    cells = [
        [Cell(each[step], [(f"step {step} of {last}", BLACK)]) for each in rows for step in steps]
        for rows in groups
    ]
    return captioned(cells, captions, len(steps))


def _prompts(config: Config) -> list[Prompt]:
    if config.prompts:
        from mmrl.data.prompts import load_prompts

        return load_prompts(config.prompts, TASK, limit=config.limit)
    texts = [text.strip() for text in config.prompt.split("|") if text.strip()]
    return [Prompt(str(n), TASK, text) for n, text in enumerate(texts)]


def _quoted(word: str) -> str:
    """A command-line word whose prompt stays text, whatever it would mean in YAML."""
    key, equals, value = word.partition("=")
    return f"prompt={json.dumps(value, ensure_ascii=False)}" if key + equals == "prompt=" else word


def main(arguments: list[str]) -> int:
    """Generate as the command line says; return the exit status."""

    def work() -> None:
        config = load_config(Config, [_quoted(word) for word in arguments])
        print(plan_of(config) if config.dry_run else "\n".join(map(str, generate(config))))

    return run_command(USAGE, arguments, work)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
