"""How prompts become rows of tokens, and finished rows completions."""
