"""VQ image tokenizers: pixels to codes and back."""
