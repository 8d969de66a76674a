"""Engines of `python -m mmrl.engines.server` in processes of their own, and short runs with one."""

import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mmrl.models.loading import new_model, read_config, save_model
from mmrl.models.policy import load_tokenizer
from mmrl.randomness import generator

SHIPPED = Path("datasets/text/checkpoints/qwen3")
TASK = "tasks.arithmetic"


def write_start(folder: Path, **changes: int) -> Path:
    """A checkpoint of the shipped sizes, but for the changes, and random weights."""
    config = {**read_config(SHIPPED), "num_hidden_layers": 1, **changes}
    save_model(new_model(config, generator(0, "weights")), folder)
    load_tokenizer(SHIPPED).save_pretrained(folder)
    return folder


class Served:
    """A running engine, with its `url`."""

    def __init__(self, model: Path, log: Path, port: int = 0, dtype: str = "float64") -> None:
        words = [f"model={model}", f"port={port}", f"dtype={dtype}", "device=cpu"]
        command = [sys.executable, "-m", "mmrl.engines.server", *words]
        self.process = subprocess.Popen(command, stderr=log.open("w"))
        end = time.monotonic() + 120
        while (said := re.search(r"listening at (http\S+),", log.read_text())) is None:
            assert self.process.poll() is None, log.read_text()
            assert time.monotonic() < end, log.read_text()
            time.sleep(0.1)
        self.url = said[1]

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@contextmanager
def serving(model: Path, log: Path, port: int = 0, dtype: str = "float64") -> Iterator[Served]:
    """An engine that is ended afterwards."""
    engine = Served(model, log, port, dtype)
    try:
        yield engine
    finally:
        engine.kill()


def words(
    start: Path, out: Path, *more: str, engine: str | None = None, **options: str
) -> list[str]:
    """A short run in which completions with more vowels are better, by an engine at an address."""
    sizes = ["num_prompts=2", "num_generations=4", "max_completion_length=8", "eval_limit=4"]
    stated = {"name": "vllm", "mode": "server", "url": engine, **options}
    sampler = ", ".join(f"{key}: {value}" for key, value in stated.items())
    return (
        ["config=configs/rl/text_qwen3.yaml", f"model.path={start}", f"output_dir={out}"]
        + [*(f"{TASK}.{size}" for size in sizes)]
        + [f"{TASK}.rewards=[{{name: 'tests/mmrl/runs.py:vowels'}}]"]
        + ([f"{TASK}.sampler={{{sampler}}}"] if engine else [])
        + ["per_device_train_batch_size=4", "max_steps=3", "eval_steps=3", "save_steps=1"]
        + ["bf16=false", "model.dtype=float64", "learning_rate=0.01", "warmup_steps=0", *more]
    )
