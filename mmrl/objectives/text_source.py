"""A data set of completions as corrupted rows: the examples of a micro-batch, and their masks."""

from mmrl.config import build_options
from mmrl.data.stream import stream_positions, stream_rows
from mmrl.objectives.corruptions import CORRUPTIONS
from mmrl.objectives.corruptions.corruption import draw_chance
from mmrl.objectives.packed_rows import Rows, pack_rows
from mmrl.objectives.source_config import SourceConfig
from mmrl.objectives.text_examples import Example, pad_completions
from mmrl.objectives.text_pieces import build_piece, build_prompt
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
        self.options = build_options(CORRUPTIONS, config.corruption, f"{config.where}.corruption")
        self.corruption = CORRUPTIONS[config.corruption["name"]]
        self.examples = load_examples(config, layouts, config.data, config.data_split)
        self.mean_length = None
        if config.normalization == "token":
            lengths = [example.trained for example in pad_completions(self.examples, config)]
            self.mean_length = sum(lengths) / len(lengths)

    def batch(self, step: int, rank: int, world_size: int, count: int) -> Rows:
        """Build the rows of the `count` examples of a rank in micro-batch `step`."""
        places = stream_positions(step, rank, world_size, count)
        numbers = stream_rows(self.seed, places, len(self.examples))
        names = [("corruption", place) for place in places]
        return self.build_rows([self.examples[n] for n in numbers], names)

    def build_rows(self, examples: list[Example], names: list[tuple[str, int]]) -> Rows:
        """Corrupt the examples of a micro-batch and put them into rows.

        Args:
            examples: of one micro-batch.
            names: of the generators of their masks.
        """
        ids, album = self.layouts.text.ids, self.layouts.album(examples)
        pieces = []
        padded = pad_completions(examples, self.config)
        for n, (example, name) in enumerate(zip(padded, names, strict=True)):
            order = example.order[: example.trained]
            chance = draw_chance(example.trained, generator(self.seed, *name))
            view = self.corruption.corrupt(order, chance, self.options)
            scale = (self.mean_length or example.trained) * len(examples)
            given = build_prompt(example, album)
            pieces.append(build_piece(example, given, view, n, scale, ids["mask"]))
        rows = pack_rows(pieces, self.config.max_length if self.config.packing else 0, ids["eos"])
        rows.features = None if album is None else album.features(rows.at)
        return rows
