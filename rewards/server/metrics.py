"""Metrics for Prometheus at `/metrics`. No label contains text of a client."""

from prometheus_client import Counter, Gauge, Histogram

SECONDS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
ITEMS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
REWARD = ("reward",)

requests = Counter("reward_server_requests", "Answers by path and status.", ("path", "status"))
request_seconds = Histogram(
    "reward_server_request_seconds", "From head to answer.", ("path",), buckets=SECONDS
)
items = Counter(
    "reward_server_items",
    "Items by reward and outcome: scored, none, or an error's code.",
    ("reward", "outcome"),
)
repeats = Counter("reward_server_repeats", "Requests that repeat another and get its answer.")
batch_items = Histogram("reward_server_batch_items", "Items of one call.", REWARD, buckets=ITEMS)
batch_seconds = Histogram(
    "reward_server_batch_seconds", "Time of one call.", REWARD, buckets=SECONDS
)
ready = Gauge("reward_server_ready", "1 once the reward is loaded.", REWARD)
waiting = Gauge("reward_server_waiting_items", "Items waiting for a batch.", REWARD)
held = Gauge("reward_server_held_bytes", "Memory counted for open requests.")
