"""Exact stateful tokenization: sessions whose append and edit cost O(change), with the ids of a full encode.

>>> from toktier import Session, load
>>> session = Session(load("toktier-mini"), "Certified cuts")
>>> patch = session.append(" change nothing.")
>>> session.tolist() == load("toktier-mini").encode("Certified cuts change nothing.").tolist()
True
"""

from typing import TYPE_CHECKING

from toktier.errors import (
    EngineFailure,
    InvalidDefinition,
    InvalidTemplate,
    InvalidText,
    MissingPackage,
    SessionInUse,
    SessionTorn,
    StateMismatch,
    TemplateFailure,
    ToktierError,
    UnknownEngine,
    UnknownTemplate,
    UnknownTokenizer,
    Unprotectable,
)
from toktier.families.family import Family
from toktier.patch import Patch
from toktier.registry import Registry, load
from toktier.report import Report
from toktier.session import Session
from toktier.tokenizer import Tokenizer

if TYPE_CHECKING:
    from toktier.chat import ChatSession, ChatTemplate
    from toktier.shelf import Usage
    from toktier.store import SessionStore
else:
    # What a session does without is imported once somebody asks for it, by one of these names or as a module.
    _ELSEWHERE = {
        "ChatSession": "toktier.chat",
        "ChatTemplate": "toktier.chat",
        "SessionStore": "toktier.store",
        "Usage": "toktier.shelf",
    }

    def __getattr__(name):
        from importlib import import_module

        if name in _ELSEWHERE:
            return getattr(import_module(_ELSEWHERE[name]), name)
        if (module := f"{__name__}.{name}") in _ELSEWHERE.values():
            return import_module(module)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __dir__():
        return sorted({*globals(), *_ELSEWHERE, *(module.rpartition(".")[2] for module in _ELSEWHERE.values())})


__version__ = "0.1.0"

__all__ = [
    "ChatSession",
    "ChatTemplate",
    "EngineFailure",
    "Family",
    "InvalidDefinition",
    "InvalidTemplate",
    "InvalidText",
    "MissingPackage",
    "Patch",
    "Registry",
    "Report",
    "Session",
    "SessionInUse",
    "SessionStore",
    "SessionTorn",
    "StateMismatch",
    "TemplateFailure",
    "Tokenizer",
    "ToktierError",
    "UnknownEngine",
    "UnknownTemplate",
    "UnknownTokenizer",
    "Unprotectable",
    "Usage",
    "load",
]
