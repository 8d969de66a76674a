"""Engines: what samples outside the trainer, with weights that follow those of the policy."""
