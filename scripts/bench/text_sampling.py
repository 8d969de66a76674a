"""Tokens per second of text sampling with and without a cache, and how many tokens it changes.

    python scripts/bench/text_sampling.py model=datasets/text/checkpoints/sdar length=64 steps=64
    python scripts/make_skeleton.py family=llada out=runs/bench/llada layers=8 width=512
    python scripts/bench/text_sampling.py model=runs/bench/llada windows=[null,32]
    python scripts/bench/text_sampling.py model=runs/bench/sdar shortest=32 length=512 steps=512

A JSON line for each cache, the first without one. `same_tokens` is the share of tokens that equal
those of the first line, `same_first_block` that of the first block. Caches of LLaDA are
approximate, and with random weights small differences decide tokens, so a trained model loses less.
That of SDAR is exact: a block never attends to later ones. The fastest of the repeats counts. With
`shortest`, rows end at places spread up to `length`, and a batch that waits for its longest row is
compared with one where others take the places of those that ended. Benchmarks share what is here.
"""

import json
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

from mmrl.config.command import Usage, read_settings


@dataclass(kw_only=True)
class Setting:
    """Sizes; `key=value` on the command line changes them."""

    model: str = "datasets/text/checkpoints/llada"
    """Checkpoint of text, such as a skeleton of public size."""
    prompt_length: int = 64
    """Letters of the prompt, one for all rows; each is a token of a skeleton."""
    length: int = 256
    """Response positions."""
    block_size: int = 32
    """Positions of a block."""
    batch: int = 4
    """Rows sampled at once."""
    steps: int = 128
    """Denoising steps."""
    temperature: float = 0.0
    """Divides the logits."""
    windows: list[int | None] = field(default_factory=lambda: [32])
    """Look-ahead windows of approximate caches; null is all."""
    shortest: int = 0
    """Length of the shortest text, whole blocks, for eight times as many rows; 0: no ends."""
    repeats: int = 2
    """The fastest of so many counts."""
    device: str = "cpu"
    """Where the network runs."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Of its weights."""


if __name__ == "__main__":  # before the seconds that torch takes
    USAGE = Usage("python scripts/bench/text_sampling.py", __doc__, Setting)
    SETTING = read_settings(USAGE, sys.argv[1:])

import torch  # noqa: E402

from mmrl.models import load_policy  # noqa: E402
from mmrl.randomness import generator  # noqa: E402
from mmrl.samplers import SamplerConfig, sample  # noqa: E402
from mmrl.types import Prompt  # noqa: E402


def report(bench: str, settings: Any, line: dict[str, Any]) -> None:
    """Print a result as a JSON line with settings, commit, hardware and torch's version."""
    git = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty"]
    commit = subprocess.run(git, stdout=subprocess.PIPE, text=True).stdout.strip()
    names = [torch.cuda.get_device_name()] if torch.cuda.is_available() else []
    names += [platform.processor() or platform.machine(), torch.backends.cpu.get_cpu_capability()]
    machine = {"machine": ", ".join(names), "threads": torch.get_num_threads()}
    around = {"commit": commit, **machine, "torch": torch.__version__, "settings": asdict(settings)}
    print(json.dumps({"bench": bench, **line, **around}), flush=True)


def now() -> float:
    """The time on the clock, once an accelerator has computed all it was given."""
    if torch.accelerator.is_available():
        torch.accelerator.synchronize()
    return time.perf_counter()


def fastest(work: Callable[[], Any], repeats: int) -> tuple[float, Any]:
    """Least seconds of repeated work, after a first time that does not count, and its result."""
    return take_turns({"": work}, repeats)[""]


def take_turns(ways: Mapping[str, Callable[[], Any]], repeats: int) -> dict[str, tuple[float, Any]]:
    """Least seconds of each way and its result, from turns of which the first does not count."""
    found: dict[str, tuple[float, Any]] = {}
    for turn in range(repeats + 1):
        for way, work in ways.items():
            started = now()
            result = work()
            seconds = now() - started
            found[way] = (min(seconds, found[way][0]) if turn > 1 else seconds), result
    return found


def measure(s: Setting) -> Iterator[dict[str, Any]]:
    """One line per way of sampling; the first is what the others are compared with."""
    sizes = {"dtype": s.dtype, "device": s.device, "max_prompt_length": s.prompt_length + 64}
    policy, rows = load_policy(s.model, vq=None, **sizes), s.batch * (8 if s.shortest else 1)
    prompt = Prompt(text=("1+2= " * s.prompt_length)[: s.prompt_length], id="a", task="text")
    canvas = policy.canvas([prompt] * rows, s.length)
    size = min(canvas.block_size or s.block_size, s.length)
    ways: dict[str, tuple[Any, int | None, int]] = {"none": ("none", None, rows)}
    if s.shortest:  # ends are there from the beginning, each in the last place of a block
        more = s.length - s.shortest  # 37 mixes short and long texts
        ends = [37 * n % rows * more // (rows - 1) // size * size - more - 1 for n in range(rows)]
        canvas.stop_ids = (canvas.columns[1] - 1,)
        canvas.tokens[range(rows), ends] = canvas.stop_ids[0]
        ways = {"waits": ("prefix", None, s.batch), "refilled": ("prefix", None, rows)}
    elif canvas.block_size is not None:
        ways["exact"] = ("prefix", None, rows)
    else:
        kinds = [(cache, window) for cache in ("prefix", "dual") for window in s.windows]
        ways |= {f"{cache} {window}": (cache, window, rows) for cache, window in kinds}

    def run(cache: Any, window: int | None, together: int) -> Any:
        options: Any = {"eos": "stop" if s.shortest else "free", "temperature": s.temperature}
        options |= {"block_size": size, "cache": cache, "window": window}
        config = SamplerConfig(name="static", steps=s.steps, **options)
        draws = [generator("bench", row) for row in range(rows)]
        parts = [slice(n, n + together) for n in range(0, rows, together)]
        done = [sample(policy, canvas[part], config, draws[part], s.batch) for part in parts]
        tokens = torch.cat([each.canvas.tokens for each in done])
        counted = torch.cat([each.canvas.counted for each in done])
        return tokens, counted, sum(each.forwards for each in done)

    results = {way: fastest(partial(run, *how), s.repeats) for way, how in ways.items()}
    most, (known, *_) = next(iter(results.values()))
    for way, (seconds, (tokens, counted, forwards)) in results.items():
        same = (tokens == known)[canvas.response].view(rows, -1)
        lengths = counted.sum(1).tolist()
        yield {
            "sampling": way,
            "tokens_per_s": round(sum(lengths) / seconds, 2),
            "ratio": round(most / seconds, 2),
            "forwards": forwards,
            "lengths": [min(lengths), sorted(lengths)[rows // 2], max(lengths)],
            "same_tokens": round(same.float().mean().item(), 4),
            "same_first_block": round(same[:, :size].float().mean().item(), 4),
        }


if __name__ == "__main__":
    for line in measure(SETTING):
        report("text_sampling", SETTING, line)
