"""Every error a user can meet: one class each, and each message names what, where and what to do."""

from __future__ import annotations


class ToktierError(Exception):
    r"""The base of every error that toktier raises on purpose.

    Arguments of a wrong type or out of range raise Python's own ``TypeError``, ``ValueError`` and ``IndexError``.

    Example:
        >>> import toktier
        >>> try:
        ...     toktier.load("toktier-mini").encode("ab\ud800")
        ... except toktier.ToktierError as error:
        ...     type(error).__name__
        'InvalidText'
    """


class InvalidDefinition(ToktierError, ValueError):
    """A tokenizer file or object that is broken, or that the reference library refuses; the message names the place.

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

    A surrogate is half of a pair that stands for one character in UTF-16. By itself it has no encoding in UTF-8 (the
    Unicode Standard, section 3.9).

    Attributes:
        character: The lone surrogate, a string of one code point from U+D800 to U+DFFF.
        position: Its index in the text that was given, in characters; it is the first.

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
    """A source that is no file, no directory, no bundled name, and could not be fetched from the hub.

    Example:
        >>> import toktier
        >>> toktier.load("./models/tokenizer.json")
        Traceback (most recent call last):
            ...
        toktier.errors.UnknownTokenizer: no file, directory or bundled tokenizer './models/tokenizer.json' ...
    """


class UnknownEngine(ToktierError, LookupError):
    """No engine of that name, or it does not serve the tokenizer; the message says which, and why.

    Example:
        >>> import toktier
        >>> toktier.load("toktier-mini").engine("fastest")
        Traceback (most recent call last):
            ...
        toktier.errors.UnknownEngine: no engine 'fastest': use 'auto' or one of 'gpu', 'gigatoken', ...
    """


class InvalidTranscript(ToktierError, ValueError):
    """A file to be replayed whose lines are not each ``{"messages": [{"role": ..., "content": ...}, ...]}``.

    Raised for the file of ``toktier demo --session FILE``.

    Example:
        >>> import pathlib, tempfile
        >>> from toktier.replay import read_transcripts
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = pathlib.Path(folder, "transcripts.jsonl")
        ...     _ = file.write_text('["Hello"]')
        ...     read_transcripts(file)
        Traceback (most recent call last):
            ...
        toktier.errors.InvalidTranscript: ...transcripts.jsonl: line 1 is not {"messages": ...
    """


class InvalidReproduction(ToktierError, ValueError):
    """A file that is no reproduction of a difference, is damaged or of another version, or lacks its tokenizer.

    Example:
        >>> import pathlib, tempfile
        >>> from toktier.campaign.reproduction import Reproduction
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = pathlib.Path(folder, "reproduction.json")
        ...     _ = file.write_text('{"format": 9}')
        ...     Reproduction.load(file)
        Traceback (most recent call last):
            ...
        toktier.errors.InvalidReproduction: ...reproduction.json: of format 9, where this version of toktier reads 1
    """


class EngineFailure(ToktierError, RuntimeError):
    """A text that could not be encoded, such as one on which a pattern backtracks beyond the library's limit.

    It is the reference that failed: where another engine does, the reference answers in its place. Only
    :meth:`toktier.Tokenizer.encode_on_device` has no other way, and raises this where the device failed.

    Example:
        >>> import tiktoken, toktier
        >>> encoding = tiktoken.Encoding("ab", pat_str=".", mergeable_ranks={b"a": 0, b"b": 1}, special_tokens={})
        >>> toktier.load(encoding).encode("abc")
        Traceback (most recent call last):
            ...
        toktier.errors.EngineFailure: tiktoken cannot encode a text of 3 characters: ...
    """


class Unprotectable(ToktierError, ValueError):
    """A tokenizer whose special tokens cannot be told apart by who wrote them, so that nothing is taken for untrusted.

    Without ``special="text"`` and ``untrusted=`` it works like any other.

    Example:
        >>> import tokenizers, toktier
        >>> scores = [("<unk>", 0.0), ("</s>", -1.0), ("a", -2.0)]
        >>> tokenizer = tokenizers.Tokenizer(tokenizers.models.Unigram(scores, unk_id=0))
        >>> tokenizer.add_special_tokens(["</s>"])
        1
        >>> toktier.load(tokenizer).encode("a</s>", untrusted=[(0, 5)])
        Traceback (most recent call last):
            ...
        toktier.errors.Unprotectable: the model may give special token '</s>' for characters that are text
    """


class SessionInUse(ToktierError, RuntimeError):
    """A session that one thread works on was called by another: use a fork each, or a :class:`toktier.SessionStore`.

    The call has done nothing. So it is with a call that comes from an engine while it encodes for the session.

    Example:
        >>> import toktier
        >>> class Meddling:
        ...     name = "meddling"
        ...
        ...     def encode(self, text, *, continuation=False):
        ...         return session.ids
        ...
        ...     def encode_batch(self, texts, *, continuation=False):
        ...         return [self.encode(text) for text in texts]
        >>> session = toktier.Session(toktier.load("toktier-mini"), engine=Meddling())
        >>> session.append("Hello")
        Traceback (most recent call last):
            ...
        toktier.errors.SessionInUse: another thread is at work in this session: ...
    """


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
    """An optional package that is needed for what was asked; the message says how to install it.

    Example:
        >>> import sys, unittest.mock
        >>> from toktier.metrics import register
        >>> with unittest.mock.patch.dict(sys.modules, prometheus_client=None):  # as if it were not installed
        ...     register()
        Traceback (most recent call last):
            ...
        toktier.errors.MissingPackage: metrics are exported by the package prometheus_client: pip install it
    """
