"""What kinds of generation share whose completions are tokens."""
