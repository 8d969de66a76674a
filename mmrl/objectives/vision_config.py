"""Sizes of a new vision tower of the `text` objective."""

from dataclasses import asdict, dataclass

from mmrl.config import check


@dataclass(kw_only=True)
class VisionConfig:
    """Sizes of a new vision tower, by the names of SigLIP's config.json, and how images are tiled.

    As in LLaDA-V the features are those before the last layer, so the last of `num_hidden_layers`
    is neither built nor stored.
    """

    hidden_size: int = 128
    """Width."""
    intermediate_size: int = 256
    """Width of the MLPs."""
    num_hidden_layers: int = 5
    """Layers, of which the last is not built."""
    num_attention_heads: int = 4
    """Heads of attention."""
    image_size: int = 32
    """Side of a tile in pixels."""
    patch_size: int = 8
    """Side of a patch in pixels."""
    image_grid_pinpoints: str = "(1x1),...,(1x1)"
    """Grids of tiles to choose from, beside the one tile of the whole image."""
    max_tiles: int = 1
    """A larger grid is shrunk to about this many tiles: the number in `anyres_max_`."""

    def __post_init__(self) -> None:
        from mmrl.models.layouts.anyres import grids_between

        where = "objective.vision"
        for key, value in asdict(self).items():
            if isinstance(value, int):
                check(value >= 1, f"{where}.{key}", value, "at least 1")
        layers, heads = self.num_hidden_layers, self.num_attention_heads
        check(layers >= 2, f"{where}.num_hidden_layers", layers, "at least 2")
        width, side, multiple = (
            self.hidden_size,
            self.image_size,
            f"a multiple of {heads}, the heads",
        )
        check(width % heads == 0, f"{where}.hidden_size", width, multiple)
        fits = side % self.patch_size == 0
        check(fits, f"{where}.image_size", side, f"a multiple of {self.patch_size}")
        grids_between(self.image_grid_pinpoints)

    @property
    def tower(self) -> dict[str, int]:
        """The sizes alone."""
        rest = ("image_grid_pinpoints", "max_tiles")
        return {key: value for key, value in asdict(self).items() if key not in rest}
