"""The kinds of generation, one folder each; `mmrl.generation.kinds` has the table of them."""
