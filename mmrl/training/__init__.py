"""The update: micro-batches, optimiser, value model, sharding, and the state of a trainer."""
