"""Exact stateful tokenization: sessions whose append and edit cost O(change), with the ids of a full encode.

>>> from toktier import Session, load
>>> session = Session(load("toktier-mini"), "Certified cuts")
>>> patch = session.append(" change nothing.")
>>> session.tolist() == load("toktier-mini").encode("Certified cuts change nothing.").tolist()
True
"""

from toktier.chat import ChatSession, ChatTemplate
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
from toktier.session import Session
from toktier.shelf import Usage
from toktier.store import SessionStore
from toktier.tokenizer import Report, Tokenizer

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
