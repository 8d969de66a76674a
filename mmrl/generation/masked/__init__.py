"""Generation by un-masking tokens: canvas, samplers, and strategies that hide tokens again."""
