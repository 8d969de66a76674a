"""How different the completions of one prompt are."""
