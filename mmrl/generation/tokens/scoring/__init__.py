"""Log-probs of the tokens of finished canvases."""
