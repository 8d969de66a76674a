"""Prompt files and data sets of the hub, read as prompts; messages and images in them."""
