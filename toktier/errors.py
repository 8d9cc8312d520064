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
        character: The lone surrogate.
        position: Its index in the text that was given; it is the first.

    Example:
        >>> import toktier
        >>> toktier.load("toktier-mini").encode("ab\ud800")
        Traceback (most recent call last):
            ...
        toktier.errors.InvalidText: surrogate U+D800 at position 2: ...
    """

    def __init__(self, character: str, position: int, where: str = "") -> None:
        super().__init__(
            f"{where}surrogate U+{ord(character):04X} at position {position}: it is half a character and has no"
            " encoding; to join pairs and replace the rest: text.encode('utf-16', 'surrogatepass').decode('utf-16',"
            " 'replace')"
        )
        self.character, self.position = character, position


class UnknownTokenizer(ToktierError, LookupError):
    """A source that is no file, no directory, no bundled name, and could not be fetched from the hub."""


class UnknownEngine(ToktierError, LookupError):
    """No engine of that name, or it does not serve the tokenizer; the message says which, and why."""


class InvalidTranscript(ToktierError, ValueError):
    """A file to be replayed whose lines are not each ``{"messages": [{"role": ..., "content": ...}, ...]}``."""


class InvalidReproduction(ToktierError, ValueError):
    """A file that is no reproduction of a difference, is damaged or of another version, or lacks its tokenizer.

    Example:
        >>> import pathlib, tempfile
        >>> from toktier.reproduction import Reproduction
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = pathlib.Path(folder, "reproduction.json")
        ...     _ = file.write_text('{"format": 9}')
        ...     Reproduction.load(file)
        Traceback (most recent call last):
            ...
        toktier.errors.InvalidReproduction: ...reproduction.json: of format 9, where this version of toktier reads 1
    """


class EngineFailure(ToktierError, RuntimeError):
    """An engine that could not encode a text, such as one on which a pattern backtracks beyond the library's limit."""


class Unprotectable(ToktierError, ValueError):
    """A tokenizer whose special tokens cannot be told apart by who wrote them, so that nothing is taken for untrusted.

    Without ``special="text"`` and ``untrusted=`` it works like any other.
    """


class SessionInUse(ToktierError, RuntimeError):
    """A session that one thread works on was called by another: use a fork each, or a :class:`toktier.SessionStore`."""


class SessionTorn(ToktierError, RuntimeError):
    """A session that an exception from outside (a signal handler's, too little memory) met while it was changing.

    Its text and its ids need not belong together any more, so it gives none. Begin a new one with the text.
    """


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


class UnknownTemplate(ToktierError, LookupError):
    """There is no chat template where it was looked for; the message lists the places.

    Example:
        >>> import tempfile
        >>> from toktier.chat import ChatTemplate
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     ChatTemplate.load(folder)
        Traceback (most recent call last):
            ...
        toktier.errors.UnknownTemplate: no chat template in ...: looked for chat_template.json, ...
    """


class InvalidTemplate(ToktierError, ValueError):
    """A chat template, or a file that should hold one, that cannot be read; the message says where.

    Example:
        >>> from toktier.chat import ChatTemplate
        >>> ChatTemplate("{% for message in messages %}")
        Traceback (most recent call last):
            ...
        toktier.errors.InvalidTemplate: the template, line 1: Unexpected end of template. ...
    """


class TemplateFailure(ToktierError, RuntimeError):
    """A chat template that could not render a conversation, or refused to; the message says why, and in which line.

    Example:
        >>> from toktier.chat import ChatTemplate
        >>> ChatTemplate("{{ raise_exception('Roles must alternate') }}").render([{"role": "user", "content": ""}])
        Traceback (most recent call last):
            ...
        toktier.errors.TemplateFailure: the template, line 1: Roles must alternate
    """


class MissingPackage(ToktierError, ImportError):
    """An optional package that is needed for what was asked."""
