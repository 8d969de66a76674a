"""Rewards: a list of samples in, one raw score per sample out.

    build_reward({"name": "clip", "model": "ViT-L-14", "pretrained": "openai"})(samples)

To add a reward, write one file with a class whose constructor takes its options as typed keyword
arguments, and add one line to `REWARDS` (`mmrl.rewards.registry.lookup`). The class is imported
when the reward is named for the first time. Heavy imports belong into the constructor, so that
listing rewards and checking a configuration stay cheap. A score of None means that the reward does
not apply to a sample. A failure is an exception and never a number (`mmrl.rewards.scoring.failures`
counts it). A reward with `cutting` judges the chunks of a completion and returns one score per
chunk. An entry with `mode: client` names a reward of a server (`mmrl.rewards.http.protocols`). A
name with a colon is that of the user's own function or class
(`mmrl.rewards.registry.reward_options`).
"""

from mmrl.rewards.registry.interface import PartialFailure, Reward
from mmrl.rewards.registry.lookup import REWARDS, build_reward, check_reward, reward_class

__all__ = ["REWARDS", "PartialFailure", "Reward", "build_reward", "check_reward", "reward_class"]
