"""Average the weights of models of one architecture and write the result.

    python scripts/average_models.py models=[runs/draws/final,runs/answers/final] out=runs/both

Fine-tuned from the same weights, two networks often have a mean that can some of both (model soups,
arXiv 2203.05482; task arithmetic, arXiv 2212.04089). It is a start for further training, such as
one policy for several tasks. Configuration and tokenizer are those of the first model.
"""

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from mmrl.config import check, load_config  # noqa: E402
from mmrl.config.command import Usage, run_command  # noqa: E402


@dataclass(kw_only=True)
class Config:
    """What to average."""

    models: list[str] = field(default_factory=list)
    """Directories or hub ids."""
    weights: list[float] | None = None
    """Of the models, divided by their sum. `null` weighs all alike."""
    out: str = ""
    """Folder of the result, a new one."""
    dtype: Literal["float32", "bfloat16", "float16"] = "bfloat16"
    """Stored precision. The mean is computed in float32."""

    def __post_init__(self) -> None:
        check(len(self.models) > 1, "models", self.models, "two or more directories or hub ids")
        if self.weights is not None:
            fits = len(self.weights) == len(self.models) and min(self.weights) > 0
            check(fits, "weights", self.weights, f"{len(self.models)} positive numbers, or null")
        new = self.out != "" and not Path(self.out).exists()
        check(new, "out", self.out, "a folder that does not exist yet")


USAGE = Usage("python scripts/average_models.py", __doc__, Config)


def average(config: Config) -> None:
    """Write the mean of the models with the tokenizer of the first.

    Raises:
        FileNotFoundError: see `load_model`; also where the first has no tokenizer.
        ValueError: also where the tensors of a model are not those of the first.
    """
    from mmrl.models import load_model
    from mmrl.models.policy import load_tokenizer, save_checkpoint
    from mmrl.models.source import find_directory
    from mmrl.models.weights import check_weights
    from mmrl.run.checkpoint import write_directory

    weights = config.weights or [1.0] * len(config.models)
    directory = find_directory(config.models[0])
    network, tokenizer = load_model(directory, "float32"), load_tokenizer(directory)
    mean = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    total = weights[0]
    for path, weight in zip(config.models[1:], weights[1:], strict=True):
        state, total = load_model(path, "float32").state_dict(), total + weight
        check_weights(state, mean, path)
        for name, tensor in mean.items():
            tensor.lerp_(state[name], weight / total)

    def write(folder: Path) -> None:
        save_checkpoint(network, tokenizer, folder, config.dtype, mean)

    write_directory(Path(config.out), write)
    print(f"{config.out}: the mean of {', '.join(config.models)}")


def main() -> int:
    """Average what the command line says; return the exit status."""
    return run_command(USAGE, sys.argv[1:], lambda: average(load_config(Config, sys.argv[1:])))


if __name__ == "__main__":
    sys.exit(main())
