"""Compile quickly: what is computed is tested, not how fast.

One compilation cache serves the whole session; workers and child processes share programs.
"""

import os
import tempfile

# Set before jax is imported; xdist workers and subprocesses inherit it.
if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
    os.environ["JAX_COMPILATION_CACHE_DIR"] = tempfile.mkdtemp(prefix="mone-test-cache-")
os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0.3"
os.environ["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "-1"
os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "1"
os.environ.setdefault("JAX_PLATFORMS", "cpu")
