"""Settings every test runs under."""

import os

# Set before any Hugging Face package is imported: a test that reaches for a file it does not
# carry has to fail at once instead of waiting for a connection. `network` tests override it.
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

# The networks of the tests are too small to gain from a second thread; one process per core runs
# them. Set before torch is imported; processes that tests start inherit it.
os.environ.setdefault("OMP_NUM_THREADS", "1")
