"""How a task follows another in a chain, see `mmrl.rollouts.chain_order`."""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from mmrl.config import Settings, at_least


@dataclass(kw_only=True)
class ChainConfig(Settings):
    """How a task follows the one whose completions are its prompts."""

    where: ClassVar[str] = "chain"

    marker: str = ""
    """What is before the prompt in a completion, such as UniRL's `Revised Prompt:`; without it
    in a completion, or empty, all of the completion is the prompt. An empty prompt falls back to
    the original one, and is counted."""
    reward_prompt: Literal["original", "rewritten"] = "original"
    """The text that rewards see."""
    reward: Literal["mean", "max", "sum", "none"] = "mean"
    """Which of the rewards of its rollouts is a reward of the completion that they came from."""
    weight: Annotated[float, at_least(0)] = 1.0
    """Weight of that reward beside the other's own."""
