"""Exact reuse between the calls of a fast tokenizer of ``transformers``: :func:`wrap`.

The code of ``transformers`` runs as it is, and sees to arguments, batches, tensors and warnings. What changes is what
it meets when it encodes a batch of texts with the library ``tokenizers``: there stands a :class:`Backend`, which knows
the ids of long texts from a store. A wrapped tokenizer is an object of a subclass that has its attributes. For the time
of a call, an object of another subclass shares them, whose ``_tokenizer`` is the :class:`Backend`. So nobody else ever
sees anything but the library's tokenizer.
"""

from __future__ import annotations

import copy
import functools
from typing import Any, TypeVar

from toktier.errors import MissingPackage
from toktier.integrations.encodings import Pending
from toktier.integrations.reuse import Backend, Reuse
from toktier.store import SessionStore

try:
    from transformers import BatchEncoding, PreTrainedTokenizerFast
except ImportError:
    raise MissingPackage(
        "toktier.integrations.transformers needs the package transformers: pip install 'transformers>=4.51'"
    ) from None

REUSE = "_toktier_reuse"
"""The attribute of a wrapped tokenizer that is not one of the original."""

WHOLE = ("return_offsets_mapping", "return_overflowing_tokens", "return_special_tokens_mask")
"""Arguments that ask for more of an encoding than its ids."""

Fast = TypeVar("Fast", bound=PreTrainedTokenizerFast)


def wrap(tokenizer: Fast, store: SessionStore | None = None) -> Fast:
    r"""A fast tokenizer that gives the same results, sooner where it is given a text that goes on from an earlier one.

    It is an object of the same class with the same attributes, and every call of it gives what the original gives:
    keys, values, types, encodings, warnings, errors. The ids of a text of 2,048 or more characters come from a store,
    which encodes what is new in it. That goes for calls with one text or a list of texts, ``encode``, and
    ``apply_chat_template``. What asks for more than ids, such as offsets, and whatever is not understood, goes to the
    library as before; ``docs/transformers.md`` has a list.

    The original is not changed. The two share the library's tokenizer, ``backend_tokenizer``: tokens that are added to
    one are in both. What changes it later is noticed with the next call, which derives it anew. Not noticed is a model
    that is put in the place of one with the same settings and size and the same ids of 32 tokens: wrap again then.

    Args:
        tokenizer: The tokenizer.
        store: Where its texts are kept. Not given: a store of its own, of one gigabyte at most.

    Returns:
        The wrapped tokenizer.

    Raises:
        TypeError: The tokenizer is no fast tokenizer of ``transformers``, or the store is no store.
        ValueError: The store is another tokenizer's.

    Example:
        >>> import toktier.families.mini
        >>> from transformers import PreTrainedTokenizerFast
        >>> tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(toktier.families.mini.path()))
        >>> store = toktier.SessionStore(toktier.load(tokenizer), max_bytes=1 << 28)
        >>> wrapped = wrap(tokenizer, store)
        >>> transcript = "<|im_start|>user\nHow long is a day?<|im_end|>\n" * 100
        >>> inputs = wrapped(transcript)
        >>> transcript += "<|im_start|>assistant\n24 hours.<|im_end|>\n"
        >>> wrapped(transcript) == tokenizer(transcript)
        True
        >>> print(store.explain())
        update: session continued; ... of 4,... characters encoded, ...
    """
    if not isinstance(tokenizer, PreTrainedTokenizerFast):
        raise TypeError(_refusal(tokenizer))
    if not isinstance(store, SessionStore | None):
        raise TypeError(f"store must be a toktier.SessionStore, not a {type(store).__name__}")
    reuse = Reuse(store)
    reuse.start(tokenizer.backend_tokenizer, split=bool(tokenizer.split_special_tokens))
    wrapped: Fast = _wrapped(_original(tokenizer), reuse)
    return wrapped


def _refusal(tokenizer: object) -> str:
    name = type(tokenizer).__name__
    if isinstance(getattr(tokenizer, "tokenizer", None), PreTrainedTokenizerFast):
        return f"cannot wrap a {name}: wrap its tokenizer, processor.tokenizer = wrap(processor.tokenizer)"
    if callable(getattr(tokenizer, "convert_tokens_to_ids", None)):
        return (
            f"cannot wrap a {name}, a slow tokenizer, which encodes in Python: load its fast form,"
            " AutoTokenizer.from_pretrained(..., use_fast=True)"
        )
    return f"cannot wrap {tokenizer!r}: give a fast tokenizer of transformers, such as AutoTokenizer gives"


class PendingBatchEncoding(BatchEncoding):
    """A ``BatchEncoding`` whose ``encodings`` are made when somebody asks for them: from then on it is a plain one."""

    @property
    def _encodings(self) -> list[Any]:
        encodings = [each.encoding() if isinstance(each, Pending) else each for each in vars(self)["_encodings"]]
        self._encodings = encodings
        return encodings

    @_encodings.setter
    def _encodings(self, encodings: Any) -> None:
        vars(self)["_encodings"] = encodings
        self.__class__ = BatchEncoding  # type: ignore[assignment]

    def __reduce_ex__(self, protocol: Any) -> Any:
        _ = self._encodings
        return BatchEncoding.__reduce_ex__(self, protocol)


def _settled(result: Any) -> Any:
    """A result of ``transformers`` in which whatever is pending is made once it is looked at."""
    encodings = getattr(result, "_encodings", None) or ()
    pending = [each for each in encodings if isinstance(each, Pending)]
    for each in pending:
        each.forget_ids()
    if pending and type(result) is BatchEncoding:
        result.__class__ = PendingBatchEncoding
    elif pending:
        result._encodings = [each.encoding() if isinstance(each, Pending) else each for each in encodings]
    return result


def _view(kind: type, attributes: dict[str, Any]) -> Any:
    """An object of a class with the attributes of another one: its own dictionary, in which both of them write."""
    view: Any = object.__new__(kind)
    object.__setattr__(view, "__dict__", attributes)
    return view


def _original(tokenizer: Any) -> Any:
    """A tokenizer like another one, wrapped or not, that is not wrapped, and shares nothing but the library's."""
    kind = getattr(type(tokenizer), "_toktier_original", type(tokenizer))
    attributes = {
        name: copy.copy(value) if type(value) in (dict, list, set) else value
        for name, value in vars(tokenizer).items()
        if name != REUSE
    }
    return _view(kind, attributes)


def _wrapped(original: Any, reuse: Reuse) -> Any:
    """An original becomes a wrapped tokenizer."""
    wrapped, _ = _classes(type(original))  # type: ignore[arg-type]  # classes are hashable
    return _view(wrapped, vars(original) | {REUSE: reuse})


def _rewrapped(original: Any) -> Any:
    """What a wrapped tokenizer is in the process where it is unpickled: its store is a new one."""
    return _wrapped(original, Reuse())


@functools.cache
def _classes(kind: type) -> tuple[type, type]:
    """The class of wrapped tokenizers of some class, and the class of what takes their place during a call."""

    def substitute(self: Any) -> Any:
        return Backend(vars(self)["_tokenizer"], vars(self)[REUSE], split=bool(self.split_special_tokens))

    def replace(self: Any, library: Any) -> None:
        vars(self)["_tokenizer"] = library

    names = {"__module__": kind.__module__, "__qualname__": kind.__qualname__, "__doc__": kind.__doc__}
    inside = type(kind.__name__, (kind,), names | {"_tokenizer": property(substitute, replace)})

    def original(self: Any) -> Any:
        return _view(kind, {name: value for name, value in vars(self).items() if name != REUSE})

    def new(cls: type, *args: Any, **kwargs: Any) -> Any:
        return kind(*args, **kwargs)  # whoever makes a new tokenizer of this class has not wrapped it

    def copied(self: Any) -> Any:
        return _wrapped(copy.copy(original(self)), copy.copy(vars(self)[REUSE]))

    def deep_copied(self: Any, memo: dict[int, Any]) -> Any:
        own = copy.deepcopy(original(self), memo)
        return _wrapped(own, vars(self)[REUSE].of_copy(own.backend_tokenizer))

    def reduced(self: Any, protocol: Any) -> Any:
        return _rewrapped, (original(self),)

    def encoding(name: str) -> Any:
        @functools.wraps(getattr(kind, name))
        def method(self: Any, *args: Any, **kwargs: Any) -> Any:
            is_whole = any(kwargs.get(argument) for argument in WHOLE)
            return _settled(getattr(_view(kind if is_whole else inside, vars(self)), name)(*args, **kwargs))

        return method

    def whole(name: str, argument: str | None = None) -> Any:
        @functools.wraps(getattr(kind, name))
        def method(self: Any, *args: Any, **kwargs: Any) -> Any:
            is_whole = argument is None or kwargs.get(argument)
            return getattr(_view(kind, vars(self)) if is_whole else super(wrapped, self), name)(*args, **kwargs)

        return method

    methods = {name: encoding(name) for name in ("_encode_plus", "_batch_encode_plus") if hasattr(kind, name)}
    wrapped = type(
        kind.__name__,
        (kind,),
        names
        | methods
        | {
            "__new__": new,
            "__copy__": copied,
            "__deepcopy__": deep_copied,
            "__reduce_ex__": reduced,
            "_toktier_original": kind,
            "from_pretrained": staticmethod(kind.from_pretrained),  # type: ignore[attr-defined]
            "tokenize": whole("tokenize"),
            "apply_chat_template": whole("apply_chat_template", "return_assistant_tokens_mask"),
        },
    )
    return wrapped, inside
