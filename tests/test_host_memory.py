import platform
import resource
import sys

import numpy as np
import pytest

from mone.host_memory import keep_freed_memory


@pytest.mark.skipif(
    not sys.platform.startswith("linux") or platform.libc_ver()[0] != "glibc", reason="glibc only"
)
def test_freed_memory_is_used_again_without_page_faults():
    assert keep_freed_memory()

    def faults() -> int:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        np.ones(8 << 20)  # 64 MiB, freed at once
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

    faults()
    assert faults() < 1000  # 16384 if each page came from the system
