"""Networks that rewards load: encoders, detectors, heads, and their checkpoints."""
