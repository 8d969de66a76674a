"""The rollouts of one step: sampled in groups, scored, and given advantages."""
