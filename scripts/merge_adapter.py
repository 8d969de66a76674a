"""Add a LoRA adapter to the weights of its base and write the whole model.

    python scripts/merge_adapter.py adapter=runs/countdown/final out=runs/countdown/merged

The adapter is a PEFT directory or a hub id: `final/` or a checkpoint of a run with `model.lora`, or
one that peft has written for a public checkpoint. Its `adapter_config.json` names the base.
"""

import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from mmrl.config import ConfigError, check, load_config  # noqa: E402
from mmrl.config.command import Usage, run_command  # noqa: E402


@dataclass(kw_only=True)
class Config:
    """What to merge."""

    adapter: str = ""
    """Directory or hub id of the adapter."""
    out: str = ""
    """Folder of the merged model, a new one."""
    dtype: Literal["float32", "bfloat16", "float16"] = "bfloat16"
    """Stored precision. The sum is computed in float32."""

    def __post_init__(self) -> None:
        check(self.adapter != "", "adapter", self.adapter, "a directory or a hub id")
        new = self.out != "" and not Path(self.out).exists()
        check(new, "out", self.out, "a folder that does not exist yet")


USAGE = Usage("python scripts/merge_adapter.py", __doc__, Config)


def merge(config: Config) -> None:
    """Write the merged model with its tokenizer.

    Raises:
        ConfigError: it is no adapter.
        FileNotFoundError, ValueError: see `load_model`.
    """
    from mmrl.models.policy import merge_directory
    from mmrl.models.source import ADAPTER_CONFIG, find_directory, is_adapter
    from mmrl.run.checkpoint import write_directory

    directory = find_directory(config.adapter)
    if not is_adapter(directory):
        raise ConfigError(f"adapter is '{config.adapter}', which holds no {ADAPTER_CONFIG}.")
    write_directory(Path(config.out), partial(merge_directory, directory, config.dtype))
    print(f"{config.out}: {config.adapter}, merged")


def main() -> int:
    """Merge what the command line says; return the exit status."""
    return run_command(USAGE, sys.argv[1:], lambda: merge(load_config(Config, sys.argv[1:])))


if __name__ == "__main__":
    sys.exit(main())
