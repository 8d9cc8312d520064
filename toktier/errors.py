"""Every error a user can meet: one class each, and each message names what, where and what to do."""

from __future__ import annotations


class ToktierError(Exception):
    """The base of every error that toktier raises on purpose."""


class InvalidDefinition(ToktierError, ValueError):
    """A tokenizer file or object that is broken, or that the reference library refuses.

    Example:
        >>> import toktier, pathlib, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = pathlib.Path(folder, "tokenizer.json")
        ...     _ = file.write_text('{"model": ')
        ...     toktier.load(file)
        Traceback (most recent call last):
            ...
        toktier.errors.InvalidDefinition: ...tokenizer.json: not JSON: ...
    """


class InvalidText(ToktierError, ValueError):
    r"""A text with a lone surrogate, which no tokenizer can encode.

    Attributes:
        position: Index of the first lone surrogate in the text that was given.

    Example:
        >>> import toktier
        >>> toktier.load("toktier-mini").encode("ab\ud800")
        Traceback (most recent call last):
            ...
        toktier.errors.InvalidText: surrogate U+D800 at position 2: ...
    """

    def __init__(self, character: str, position: int) -> None:
        super().__init__(
            f"surrogate U+{ord(character):04X} at position {position}: it is half a character and has no encoding; to "
            "join pairs and replace the rest: text.encode('utf-16', 'surrogatepass').decode('utf-16', 'replace')"
        )
        self.position = position


class UnknownTokenizer(ToktierError, LookupError):
    """A source that is no file, no directory, no bundled name, and could not be fetched from the hub."""


class UnknownEngine(ToktierError, LookupError):
    """No engine of that name, or it does not serve the tokenizer; the message says which, and why."""


class InvalidTranscript(ToktierError, ValueError):
    """A file to be replayed whose lines are not each ``{"messages": [{"role": ..., "content": ...}, ...]}``."""


class EngineFailure(ToktierError, RuntimeError):
    """An engine that could not encode a text, such as one on which a pattern backtracks beyond the library's limit."""


class StateMismatch(ToktierError, ValueError):
    """A saved state that is damaged, cut off, of another tokenizer or of another version; nothing of it was used.

    Example:
        >>> import toktier
        >>> tok = toktier.load("toktier-mini")
        >>> toktier.Session.from_bytes(tok, tok.session("saved").to_bytes()[:-1])
        Traceback (most recent call last):
            ...
        toktier.errors.StateMismatch: the state is damaged or cut off ...
    """
