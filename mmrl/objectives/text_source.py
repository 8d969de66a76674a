"""A data set of completions as corrupted rows: the examples of a micro-batch, and their masks."""

from mmrl.config import build_options
from mmrl.data.image_sources import find_image_root
from mmrl.data.rows import read_rows
from mmrl.data.stream import stream_positions, stream_rows
from mmrl.objectives.corruptions import CORRUPTIONS
from mmrl.objectives.corruptions.corruption import draw_chance
from mmrl.objectives.packed_rows import Rows, lay_out
from mmrl.objectives.source_config import SourceConfig
from mmrl.objectives.text_examples import Example, filled
from mmrl.objectives.text_pieces import piece, shown
from mmrl.objectives.text_rows import AnswerLayouts, load_examples
from mmrl.randomness import generator


class Source:
    """The examples of a data set, and rows of them.

    Args:
        config: settings.
        layouts: layouts of the checkpoint.
        seed: of the order of examples and of every mask.
    """

    def __init__(self, config: SourceConfig, layouts: AnswerLayouts, seed: int) -> None:
        self.config, self.layouts, self.seed = config, layouts, seed
        kind, where = CORRUPTIONS[config.corruption["name"]], f"{config.where}.corruption"
        self.corruption = kind(build_options(CORRUPTIONS, config.corruption, where))
        self.examples = examples_of(config, layouts)
        self.mean_length = self._mean_length()

    def batch(self, step: int, rank: int, world_size: int, count: int) -> Rows:
        """The `count` examples of a rank in micro-batch `step`, corrupted and laid out."""
        places = stream_positions(step, rank, world_size, count)
        numbers = stream_rows(self.seed, places, len(self.examples))
        names = [("corruption", place) for place in places]
        return self.rows([self.examples[n] for n in numbers], names)

    def rows(self, examples: list[Example], names: list[tuple[str, int]]) -> Rows:
        """Examples corrupted and laid out.

        Args:
            examples: of one micro-batch.
            names: of their draws.
        """
        ids, album = self.layouts.text.ids, self.layouts.album()
        pieces = []
        for n, (example, name) in enumerate(zip(filled(examples, self.config), names, strict=True)):
            chance = draw_chance(example.trained, generator(self.seed, *name))
            view = self.corruption(example.order[: example.trained], chance)
            scale = (self.mean_length or example.trained) * len(examples)
            pieces.append(piece(example, shown(example, album), view, n, scale, ids["mask"]))
        rows = lay_out(pieces, self.config.max_length if self.config.packing else 0, ids["eos"])
        rows.features = None if album is None else album.features(rows.at)
        return rows

    def _mean_length(self) -> float | None:
        if self.config.normalization == "sequence":
            return None
        whole = filled(self.examples, self.config)
        return sum(example.trained for example in whole) / len(whole)


def examples_of(
    config: SourceConfig,
    layouts: AnswerLayouts,
    source: str | None = None,
    split: str | None = None,
) -> list[Example]:
    """The examples of a data set, that of the settings by default; see `load_examples`."""
    if source is None:
        source, split = config.data, config.data_split
    rows = read_rows(source, config.data_config, split)
    recorded = CORRUPTIONS[config.corruption["name"]].recorded
    root = find_image_root(source, config.image_root, f"{config.where}.image_root")
    return load_examples(rows, source, config, layouts, root, recorded)
