"""Settings of `python -m mmrl.eval_v` for images that are written."""

from __future__ import annotations

from dataclasses import dataclass

from eval.benchmark_config import BenchmarkConfig, Setting
from mmrl.config import ConfigError, check, check_choice


@dataclass(kw_only=True)
class EvalConfig(BenchmarkConfig):
    """Settings of a benchmark of image generation."""

    task: str = "text_to_image"
    """What is benchmarked."""
    num_images_per_prompt: int = 1
    """Images per prompt."""
    grid_images: int = 48
    """Images in the grid."""
    geneval_dir: str | None = None
    """Also write the images as GenEval's evaluator reads them."""

    def __post_init__(self) -> None:
        super().__post_init__()
        number = self.num_images_per_prompt
        check(number >= 1, "num_images_per_prompt", number, "at least 1")
        check_choice("task", self.task, ("text_to_image",))
        if not self.rewards and self.geneval_dir is None:
            raise ConfigError(
                "rewards is empty and geneval_dir is null: name a reward, such as {name: clip},"
                " or a folder for images that another program scores."
            )

    @property
    def settings(self) -> dict[str, Setting]:
        """The sampler by its name."""
        return {self.sampler.name: Setting(self.sampler)}
