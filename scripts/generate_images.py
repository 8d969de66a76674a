"""Images from prompts: a captioned grid and a film of the denoising.

    python scripts/generate_images.py prompt="a red circle and a blue square"
    python scripts/generate_images.py model=Gen-Verse/MMaDA-8B-MixCoT vq=showlab/magvitv2 \
        prompt="a fox in the snow" image_size=512 cfg_scale=3.5 steps=50 name=maskgit device=cuda

Writes `grid.png`, `film.gif` and `film.png` (the same steps side by side) into `out`. The film
comes from the step at which each token was written; cells that are still masked are painted grey.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from PIL import Image, ImageDraw, ImageFont  # noqa: E402

from mmrl.config import ConfigError, check, check_choice, load_config  # noqa: E402
from mmrl.data import load_prompts  # noqa: E402
from mmrl.randomness import generator  # noqa: E402
from mmrl.samplers import RULES, SamplerConfig, sample  # noqa: E402
from mmrl.types import Prompt, Rollout  # noqa: E402
from models import Policy, load_policy  # noqa: E402

TASK = "text_to_image"
GREY = (176, 176, 176)
CHECKPOINTS = ROOT / "datasets" / "shapes" / "checkpoints"


@dataclass(kw_only=True)
class Config(SamplerConfig):
    """Sampler settings and where prompts, model and pictures are."""

    model: str = str(CHECKPOINTS / "mmada")
    vq: str = str(CHECKPOINTS / "magvit")
    prompt: str = ""
    """One prompt, or several separated by `|`."""
    prompts: str = ""
    """A prompt file instead."""
    num_images: int = 4
    """Images per prompt."""
    limit: int = 8
    """At most this many prompts of a file."""
    max_prompt_length: int = 64
    image_size: int | None = None
    dtype: str = "float32"
    device: str = "cpu"
    seed: int = 0
    out: str = "runs/images"
    cell: int = 128
    """Smallest side of an image in the pictures, in pixels."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("name", self.name, RULES)
        check(bool(self.prompt) != bool(self.prompts), "prompt", self.prompt, "given, or prompts")
        check(self.num_images >= 1, "num_images", self.num_images, "at least 1")


def generate(config: Config) -> list[Path]:
    """Sample and write the pictures; return their paths."""
    prompts = _prompts(config)
    policy = load_policy(
        config.model,
        vq=config.vq,
        dtype=config.dtype,
        device=config.device,
        max_prompt_length=config.max_prompt_length,
        image_size=config.image_size,
    )
    rows = [prompt for prompt in prompts for _ in range(config.num_images)]
    draws = [
        generator(config.seed, "images", prompt.text, n)
        for prompt in prompts
        for n in range(config.num_images)
    ]
    rollout = sample(policy, policy.canvas(rows), config, draws)
    images = [scaled(image, config.cell) for image in policy.decode(rollout.canvas, rows)]
    out = Path(config.out)
    out.mkdir(parents=True, exist_ok=True)
    paths = [out / "grid.png", out / "film.gif", out / "film.png"]
    captioned(images, [prompt.text for prompt in prompts]).save(paths[0])
    frames = film(policy, rollout, rows, config.num_images, config.cell)
    times = [250] * (len(frames) - 1) + [1500]
    frames[0].save(paths[1], save_all=True, append_images=frames[1:], duration=times, loop=0)
    stacked([strip(frames)]).save(paths[2])
    return paths


def film(
    policy: Policy, rollout: Rollout, rows: list[Prompt], columns: int, cell: int
) -> list[Image.Image]:
    """One frame per denoising step: all images, unwritten cells grey."""
    images = [scaled(image, cell) for image in policy.decode(rollout.canvas, rows)]
    steps = range(-1, int(rollout.written_at.max()) + 1)
    frames = []
    for step in steps:
        shown = [painted(image, rollout, b, step) for b, image in enumerate(images)]
        lines = [shown[n : n + columns] for n in range(0, len(shown), columns)]
        frames.append(stacked([strip(line) for line in lines]))
    return frames


def painted(image: Image.Image, rollout: Rollout, row: int, step: int) -> Image.Image:
    """The image with every cell written after `step` painted grey."""
    canvas = rollout.canvas
    height, width = canvas.grid or (1, 1)
    written = rollout.written_at[row][canvas.response[row]].view(height, width)
    shown = image.copy()
    draw = ImageDraw.Draw(shown)
    for y, x in (written > step).nonzero().tolist():
        box = (x * image.width // width, y * image.height // height)
        end = ((x + 1) * image.width // width - 1, (y + 1) * image.height // height - 1)
        draw.rectangle((*box, *end), fill=GREY)
    return shown


def captioned(images: list[Image.Image], captions: list[str]) -> Image.Image:
    """A row of images per caption, the caption above it."""
    each = len(images) // len(captions)
    lines = []
    for n, text in enumerate(captions):
        line = strip(images[n * each : (n + 1) * each])
        label = Image.new("RGB", (line.width, 22), "white")
        ImageDraw.Draw(label).text((4, 3), text, fill="black", font=ImageFont.load_default(14))
        lines += [label, line]
    return stacked(lines)


def strip(images: list[Image.Image]) -> Image.Image:
    """Images side by side."""
    gap = 4
    width = sum(image.width + gap for image in images) + gap
    line = Image.new("RGB", (width, images[0].height + gap), "white")
    left = gap
    for image in images:
        line.paste(image, (left, 0))
        left += image.width + gap
    return line


def stacked(lines: list[Image.Image]) -> Image.Image:
    """Images below each other."""
    page = Image.new("RGB", (max(i.width for i in lines), sum(i.height for i in lines)), "white")
    top = 0
    for line in lines:
        page.paste(line, (0, top))
        top += line.height
    return page


def scaled(image: Image.Image, cell: int) -> Image.Image:
    """The image enlarged to at least `cell` pixels a side, without blur."""
    factor = max(1, -(-cell // image.width))
    return image.resize((image.width * factor, image.height * factor), Image.Resampling.NEAREST)


def _prompts(config: Config) -> list[Prompt]:
    if config.prompts:
        return load_prompts(config.prompts, TASK)[: config.limit]
    texts = [text.strip() for text in config.prompt.split("|")]
    return [Prompt(str(n), TASK, text) for n, text in enumerate(texts)]


def main(arguments: list[str]) -> int:
    """Generate as the command line says; return the exit status."""
    try:
        for path in generate(load_config(Config, arguments)):
            print(path)
    except (ConfigError, FileNotFoundError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
