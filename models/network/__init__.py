"""The transformer: core, attention, norm, cache, vision tower and value head."""
