"""Large tensors on a CPU are in huge pages, where the kernel gives any."""

import subprocess
import sys
from pathlib import Path

import pytest

SETTING = Path("/sys/kernel/mm/transparent_hugepage/enabled")
FILL = """
import mmrl, torch, resource
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
torch.ones(64 * 2**18)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(
    not SETTING.exists() or "[never]" in SETTING.read_text(), reason="this kernel gives none"
)
def test_a_large_tensor_takes_few_page_faults() -> None:
    done = subprocess.run([sys.executable, "-c", FILL], capture_output=True, check=True)
    assert int(done.stdout) < 64 * 2**20 / 4096 / 4, "one for every page of 4 kB is 16,384"
