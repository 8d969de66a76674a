"""The checkpoint of a policy: its settings, what its files say, and what is refused unread."""
