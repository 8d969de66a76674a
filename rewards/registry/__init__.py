"""What a reward is, which ones there are, and how a configuration entry becomes one."""
