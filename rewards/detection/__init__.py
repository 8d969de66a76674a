"""Objects found in images, and GenEval's rules on them."""
