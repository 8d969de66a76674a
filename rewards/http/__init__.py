"""The client side of reward servers: requests, retries, and the protocols they speak."""
