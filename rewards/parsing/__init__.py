"""What is read from completions and metadata: numbers, answers, code, images."""
