"""Scoring of a batch: terms of the weighted sum, threads, failures."""
