"""Objectives that train the CLIP and the image tokenizer of the miniature checkpoints."""
