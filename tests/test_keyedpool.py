"""Threads for the calls of event loops."""

from __future__ import annotations

import asyncio

import pytest

from toktier.keyedpool import KeyedPool


@pytest.mark.parametrize("was_used", [False, True])
def test_a_pool_that_was_closed_takes_no_calls(was_used: bool) -> None:
    pool, done = KeyedPool(1, "an example"), list[int]()
    if was_used:
        asyncio.run(pool.run("a", lambda: done.append(1)))
    pool.close()
    before = done.copy()
    with pytest.raises(RuntimeError, match="after shutdown"):
        asyncio.run(pool.run("a", lambda: done.append(2)))
    assert done == before == [1] * was_used
    assert not pool._turns
