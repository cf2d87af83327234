"""numba, loaded without the linear algebra that it looks for and nothing here uses: a third of a second."""

from __future__ import annotations

import sys

from numba import njit

if "scipy.linalg" not in sys.modules:
    sys.modules["scipy.linalg"] = None  # type: ignore[assignment]  # "not installed", for one look
    try:
        import numba.np.arraymath  # noqa: F401
    finally:
        del sys.modules["scipy.linalg"]

compiled = njit(cache=True, nogil=True)
"""A function compiled once for all runs, which leaves the interpreter to other threads while it works."""
