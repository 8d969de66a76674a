"""Generation by appending tokens from left to right: canvas, sampler, and its one reading."""
