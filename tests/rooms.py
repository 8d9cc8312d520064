"""Makes short texts large to everything that treats long ones in another way."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from unittest import mock

from toktier import difference, encodedtext, idarray, piecetable, planner, seams, servedtext


@contextlib.contextmanager
def small_rooms() -> Iterator[None]:
    """Seams, hunks and pieces become so small that a few characters have many of them."""
    with (
        mock.patch.multiple(seams, SPACING=6, CHUNK=12, COARSE=24),
        mock.patch.object(servedtext, "LONG", 24),
        mock.patch.object(encodedtext, "COARSE", 24),
        mock.patch.multiple(planner, CHUNK=12, REACH=5, LONG=24),
        mock.patch.multiple(difference, SAMPLE=3, OFFSETS=(0, 2, 5, 11), REACH=40, WORTHWHILE=4),
        mock.patch.multiple(piecetable, LIMIT=8, BLOCK=4, SLACK=16),
        mock.patch.object(idarray, "SPARE", 1),
    ):
        yield
