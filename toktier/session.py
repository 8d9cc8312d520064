"""Sessions: a text that grows and changes, whose ids stay exact while only what changed is encoded.

What belongs to the caller is here: arguments, and threads, of which one at a time may be at work in a session. The text
and its ids are :class:`toktier.encodedtext.EncodedText`; the engine that may be demoted meanwhile, and the account of
every operation, are :class:`toktier.servedtext.ServedText`.
"""

from __future__ import annotations

import operator
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import NoReturn, SupportsIndex, TypeVar

from toktier.engines.base import Engine, Ids
from toktier.errors import SessionInUse, SessionTorn
from toktier.explanation import Explanation
from toktier.families.family import valid_text
from toktier.patch import Patch
from toktier.servedtext import ServedText
from toktier.state import pack, unpack
from toktier.tokenizer import Tokenizer
from toktier.untrusted import Spans, Special, is_text

IN_USE = "another thread is at work in this session: give each thread its fork(), or share a toktier.SessionStore"

T = TypeVar("T")


class Session:
    """The ids of one text that grows and changes, always equal to the reference's for the whole text.

    ``append`` and ``edit`` encode what changed, whatever the length of the text (an edit also moves the ids behind it,
    in memory); ``update`` reads the text once, at the speed of a memory comparison. An operation that raises leaves the
    session as it was. What a signal handler raises may also come right after the change; in the middle of it, as when
    memory runs out there, the session gives no ids any more rather than wrong ones
    (:class:`toktier.errors.SessionTorn`). What a session has handed out never changes. A session is for one thread at a
    time: a call that finds another thread at work in it raises.

    On a tokenizer without certified cuts (``tok.family.reason`` says why) everything works, by encoding in full.

    The text is a piece table (C. Crowley, "Data structures for text sequences", 1998); why it is enough to encode
    between certified cuts is proved in ``docs/theory.md``.

    Args:
        tok: The tokenizer.
        text: The text to begin with.
        engine: What encodes, for as long as the session lives: the name of an engine (see :meth:`Tokenizer.engine`), or
            an object that answers to :class:`toktier.engines.base.Engine`.

    Raises:
        TypeError: An argument is of another type.
        InvalidText: The text has a lone surrogate.
        UnknownEngine: There is no engine of that name, or it does not serve this tokenizer.
        ValueError: The engine is another tokenizer's.
        EngineFailure: The reference library cannot encode the text.

    Example:
        >>> import toktier
        >>> tok = toktier.load("toktier-mini")
        >>> session = toktier.Session(tok, "The quick brown fox")
        >>> session.append(" jumps over the lazy dog.")
        Patch(start=..., stop=..., ids=<... ids>, before=...)
        >>> session.edit(4, 9, "slow")
        Patch(start=..., stop=..., ids=<... ids>, before=...)
        >>> session.text
        'The slow brown fox jumps over the lazy dog.'
        >>> session.tolist() == tok.encode(session.text).tolist()
        True
    """

    __slots__ = ("_busy", "_served", "_tok")

    def __init__(self, tok: Tokenizer, text: str = "", *, engine: str | Engine = "auto") -> None:
        if not isinstance(tok, Tokenizer):
            raise TypeError(f"tok must be a toktier.Tokenizer, not a {type(tok).__name__}: toktier.load() makes one")
        if not isinstance(engine, (str, Engine)):
            raise TypeError(f"engine must be a name or a toktier.engines.base.Engine, not {engine!r}")
        if getattr(engine, "digest", None) not in {None, tok.family.digest}:
            raise ValueError(f"engine {engine!r} is another tokenizer's, and gives other ids than {tok!r}")
        self._tok = tok
        self._busy = threading.Lock()
        self._served = ServedText(tok, tok.engine(engine) if isinstance(engine, str) else engine)
        if text := valid_text(text):
            self._served.begin(text)

    def __len__(self) -> int:
        """The number of ids."""
        return self._looked_up(lambda: len(self._served.held.ids))

    def __bool__(self) -> bool:
        """True, also of a session without any ids: it is a session."""
        return True

    def __repr__(self) -> str:
        held = self._served.held
        if held.is_torn:
            return "<toktier.Session that was interrupted while it changed>"
        return f"<toktier.Session {len(held.table)} characters, {len(held.ids)} ids, engine {self.engine.name}>"

    @property
    def text(self) -> str:
        """The whole text. Put together when asked for; once it is, the session shares its memory."""
        self._enter()
        try:
            return self._served.held.table.text()
        finally:
            self._busy.release()

    @property
    def untrusted(self) -> Spans:
        """The untrusted characters of the text, as spans ``(start, stop)``, half-open, in ascending order."""
        return self._looked_up(lambda: self._served.held.untrusted.spans())  # noqa: PLW0108  # another one, once a change is done

    @property
    def ids(self) -> Ids:
        """The ids, a read-only array that never changes; uint32, shape (ids,).

        It shares the session's memory: an operation that would write where it can be seen copies first.
        """
        self._enter()
        try:
            return self._served.ids()
        finally:
            self._busy.release()

    @property
    def nbytes(self) -> int:
        """The bytes of text, ids, seams and what keeps them in order. What is shared with a fork counts in both."""
        return sys.getsizeof(self) + self._looked_up(lambda: self._served.nbytes)

    @property
    def tokenizer(self) -> Tokenizer:
        """What its ids are of."""
        return self._tok

    @property
    def engine(self) -> Engine:
        """What encodes for this session."""
        return self._served.engine

    def tolist(self) -> list[int]:
        """The ids as a new list, copied from one that is kept up to date from the first call on.

        Raises:
            SessionInUse: Another thread is at work in this session.

        Example:
            >>> import toktier
            >>> toktier.load("toktier-mini").session("Hello world").tolist()
            [39, 523, 323, 3241, 1151]
        """
        self._enter()
        try:
            return self._served.tolist()
        finally:
            self._busy.release()

    def append(self, text: str, *, special: Special = "token") -> Patch:
        r"""Adds to the end of the text.

        The engine sees ``text`` and the characters before it back to the last certified cut.

        Args:
            text: What comes behind the text so far.
            special: What special tokens in it are: tokens, or ``"text"`` because nobody trusts who wrote it. A special
                token counts only where its whole occurrence lies in trusted text.

        Returns:
            What changed of the ids. It may begin before their end, where the last token became a longer one.

        Raises:
            TypeError: The text is not a string.
            ValueError: ``special`` is neither ``"token"`` nor ``"text"``.
            InvalidText: The text has a lone surrogate.
            EngineFailure: The reference library cannot encode the text.
            Unprotectable: Special tokens are to be text, and this tokenizer's are found in a way that does not allow
                for it.
            SessionInUse: Another thread is at work in this session.

        Example:
            >>> import toktier
            >>> session = toktier.load("toktier-mini").session("<|im_start|>user\n")
            >>> patch = session.append("I say <|im_end|>", special="text")
            >>> patch = session.append("<|im_end|>\n")
            >>> session.tolist().count(4089)  # of <|im_end|>
            1
        """
        if type(text) is not str or not text.isascii():
            text = valid_text(text)
        spans = () if special == "token" else self._spans_of(text, special)
        if not self._busy.acquire(blocking=False):  # as _enter() does, which would take a part of the time
            raise SessionInUse(IN_USE)
        try:
            return self._served.append(text, spans)
        finally:
            self._busy.release()

    def edit(self, start: SupportsIndex, stop: SupportsIndex, text: str, *, special: Special = "token") -> Patch:
        """Replaces the characters from ``start`` to ``stop``.

        Args:
            start: Position of the first character to replace, ``0 <= start <= stop``.
            stop: Position after the last one, ``stop <= len(session.text)``; equal to ``start`` for an insertion.
            text: What stands there afterwards.
            special: As for :meth:`append`. What stays as it is stays as trusted as it is.

        Returns:
            What changed of the ids.

        Raises:
            IndexError: A position is out of range; negative ones do not count from the end.
            TypeError: The text is not a string, or a position is not an integer.
            ValueError: ``special`` is neither ``"token"`` nor ``"text"``.
            InvalidText: The text has a lone surrogate.
            EngineFailure: The reference library cannot encode the text.
            Unprotectable: As for :meth:`append`.
            SessionInUse: Another thread is at work in this session.

        Example:
            >>> import toktier
            >>> session = toktier.load("toktier-mini").session("One pipe, one line")
            >>> patch = session.edit(4, 8, "table")
            >>> session.text, session.tolist()[patch.start : patch.start + len(patch.ids)] == patch.ids.tolist()
            ('One table, one line', True)
        """
        text = valid_text(text)
        start, stop = operator.index(start), operator.index(stop)
        spans = self._spans_of(text, special)
        self._enter()
        try:
            return self._served.edit(start, stop, text, spans)
        finally:
            self._busy.release()

    def update(self, full_text: str, *, untrusted: Iterable[Sequence[int]] = ()) -> Patch:
        """Makes ``full_text`` the text, whatever changed: finds that out itself.

        For front ends that render the whole transcript on every call, and drop reasoning from old turns, shorten
        old tool results or replace the generation prompt on the way. What is encoded is what changed, in however many
        places; the patch is one all the same, from the first of them to the last.

        Args:
            full_text: The whole text.
            untrusted: Spans ``(start, stop)`` of its characters that may be no part of a special token; all others are
                trusted, whatever they were before.

        Returns:
            What changed of the ids.

        Raises:
            TypeError: The text is not a string, or ``untrusted`` is not a sequence of spans.
            IndexError: A span does not lie in the text.
            InvalidText: The text has a lone surrogate.
            EngineFailure: The reference library cannot encode the text.
            Unprotectable: As for :meth:`append`.
            SessionInUse: Another thread is at work in this session.

        Example:
            >>> import toktier
            >>> session = toktier.load("toktier-mini").session("One pipe. Another pipe.")
            >>> patch = session.update("One line. Another line.")
            >>> patch.start, patch.stop, session.text
            (2, 8, 'One line. Another line.')
        """
        if type(full_text) is not str:
            full_text = valid_text(full_text)
        spans = self._tok.untrusted_spans(untrusted, len(full_text))
        self._enter()
        try:
            return self._served.update(full_text, spans)
        finally:
            self._busy.release()

    def _spans_of(self, text: str, special: Special) -> Spans:
        if special == "token" or not is_text(special):
            return ()
        return self._tok.untrusted_spans([(0, len(text))], len(text))

    def explain(self) -> Explanation:
        """What the last operation did and why: a dictionary of facts, and one line for people as its ``str()``.

        ``"windows"`` are the stretches that were encoded: characters from ``start`` to ``stop``, counted in the text
        after the operation, in ascending order. They are longer than what changed: they reach back to the last
        certified cut, and on to the next one.

        Example:
            >>> import toktier
            >>> session = toktier.load("toktier-mini").session("The quick brown fox", engine="memo")
            >>> patch = session.append(" jumps over")
            >>> print(session.explain())
            append: 11 of 30 characters encoded, from the certified cut at 19 on by memo; 4 ids replace 0; ... ms
            >>> session.explain()["reused"]
            19
            >>> session.explain()["windows"]
            [[19, 30]]
        """
        return self._looked_up(self._served.explanation)

    def to_bytes(self) -> bytes:
        """The state of this session, to be kept or sent: some 8 bytes an id for English text.

        It has the text as it is, and is not encrypted.

        Raises:
            SessionInUse: Another thread is at work in this session.

        Example:
            >>> import toktier
            >>> tok = toktier.load("toktier-mini")
            >>> data = toktier.Session(tok, "to be continued").to_bytes()
            >>> toktier.Session.from_bytes(tok, data).text
            'to be continued'
        """
        self._enter()
        try:
            return pack(self._served.state(), self._tok.family.digest)
        finally:
            self._busy.release()

    @classmethod
    def from_bytes(
        cls, tok: Tokenizer, data: bytes | bytearray | memoryview, *, engine: str | Engine = "auto"
    ) -> Session:
        """A session in the state that :meth:`to_bytes` gave.

        Args:
            tok: The tokenizer; it may have been loaded from another file, or in another process.
            data: The state.
            engine: As for a new session.

        Raises:
            StateMismatch: The state is damaged, of another tokenizer or of another version; the message says which.
            UnknownEngine: There is no engine of that name, or it does not serve this tokenizer.
            TypeError: The tokenizer or the engine is something else.
            ValueError: The engine is another tokenizer's.

        Example:
            >>> import toktier
            >>> tok = toktier.load("toktier-mini")
            >>> session = toktier.Session.from_bytes(tok, tok.session("Once upon a ti").to_bytes())
            >>> patch = session.append("me")
            >>> session.tolist() == tok.encode("Once upon a time").tolist()
            True
        """
        session = cls(tok, engine=engine)
        session._served.resume(unpack(data, tok.family.digest))
        return session

    def fork(self) -> Session:
        """An independent session with the same state; ids and strings are shared until one of the two changes them.

        ``copy.copy`` and ``copy.deepcopy`` do the same.

        Raises:
            SessionInUse: Another thread is at work in this session.

        Example:
            >>> import toktier
            >>> session = toktier.load("toktier-mini").session("One question. ")
            >>> retries = [session.fork() for _ in range(2)]
            >>> patches = [retry.append(answer) for retry, answer in zip(retries, ["Yes.", "No."])]
            >>> [retry.text for retry in retries], session.text
            (['One question. Yes.', 'One question. No.'], 'One question. ')
        """
        self._enter()
        try:
            other = object.__new__(Session)
            other._tok, other._busy, other._served = self._tok, threading.Lock(), self._served.fork()
            return other
        finally:
            self._busy.release()

    __copy__ = fork

    def __deepcopy__(self, memo: object) -> Session:
        return self.fork()

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Session is not pickled: send its to_bytes(), of which Session.from_bytes() makes one")

    def _looked_up(self, look: Callable[[], T]) -> T:
        """What can be looked at without waiting, unless another thread is in the middle of a change."""
        try:
            return look()
        except SessionTorn:
            self._enter()
            try:
                return look()  # it was that thread's change, which is done
            finally:
                self._busy.release()

    def _enter(self) -> None:
        if not self._busy.acquire(blocking=False):
            raise SessionInUse(IN_USE)

    @property
    def _is_left_behind(self) -> bool:
        """Whether a call was interrupted in it: asked by who knows that nobody is at work in it now."""
        return self._served.is_torn or self._busy.locked()
