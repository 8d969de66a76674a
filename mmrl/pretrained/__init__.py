"""A policy's checkpoint before it is loaded: what its files say, and what is refused."""
