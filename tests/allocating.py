"""What an action costs in memory."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable


def allocated(action: Callable[[], object]) -> tuple[int, int]:
    """Bytes that the action leaves allocated (may be negative), and its peak above what was there before."""
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        action()
        after, peak = tracemalloc.get_traced_memory()
        return after - before, peak - before
    finally:
        tracemalloc.stop()
