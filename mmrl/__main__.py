"""Reinforcement learning on generative models. The commands, each with --help:

python -m mmrl.rl              reinforcement learning of generative models
python -m mmrl.sft             supervised training of tokenizers and generative models
python -m mmrl.eval            text benchmarks: accuracy, length, NFE and speed of samplers
python -m mmrl.eval_v          benchmarks of image generation and of image understanding
python -m mmrl.probe           score a few samples with the rewards of a run, without its policy
python -m mmrl.demo            a page in the browser: draw, write and ask step by step
python -m mmrl.rewards.server  serve rewards over HTTP
python -m mmrl.engines.server  serve a causal policy over HTTP, by the calls of vLLM
"""

import sys
from collections.abc import Sequence

from mmrl.config.command import HELP, write_out


def main(arguments: Sequence[str]) -> int:
    """List the commands; return the exit status."""
    write_out(__doc__ or "")
    return 0 if set(arguments) <= set(HELP) else 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
