"""One file per checkpoint family: its keys, config, special tokens and layouts."""
