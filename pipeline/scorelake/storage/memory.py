"""Memory that is given back and asked for again costs more than what is done with it."""

from __future__ import annotations

import ctypes
from contextlib import suppress

import pyarrow as pa

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3


def keep() -> None:
    """Have the C library keep some of what numpy and Arrow give up, instead of getting pages from the system anew.

    The kernel clears every page it hands out: a quarter of the time of scoring 20 million problems, and half of
    that of merging with Arrow's own allocator. Where the library is another than glibc, nothing is kept.
    """
    pa.set_memory_pool(pa.system_memory_pool())
    with suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_MMAP_THRESHOLD, 1 << 28)
        mallopt(_TRIM_THRESHOLD, 1 << 28)


def give_back() -> None:
    """Return to the system what is kept but not used: after a stage whose arrays no later one will need again."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
