"""What is checked, estimated and tried before a run loads its weights."""
