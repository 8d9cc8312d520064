"""What the tests of both servers share: signatures of the packages, recorded and installed, and transcripts."""

from __future__ import annotations

import functools

import pytest
import tokenizers

import toktier
from tests import material
from tests.integrations.signatures import Signatures, installed, recorded

WHICH = ("recorded", "installed")
"""What a test about signatures runs against; its name says which."""


def signatures(package: str, which: str) -> Signatures:
    """The signatures of a package; without it, tests of what is installed are skipped, and say so."""
    if which == "recorded":
        return recorded(package)
    found = installed(package)
    if found is None:
        pytest.skip(f"{package} is not installed: ran against what was recorded of {recorded(package).version} alone")
    return found


@functools.cache
def library(name: str) -> tokenizers.Tokenizer:
    """The tokenizer as a server has it: transformers truncates and pads nothing unless it is asked to."""
    made = tokenizers.Tokenizer.from_buffer(material.definition(name))
    made.no_truncation()
    made.no_padding()
    return made


def store(name: str = "toktier-mini") -> toktier.SessionStore:
    """A new store."""
    return toktier.SessionStore(material.load(name), engine="memo")


def transcripts() -> list[str]:
    """The turns of a conversation, each the whole of it so far."""
    messages = material.agent_sessions()[0][:12]
    return [material.chatml(messages[:count]) for count in range(1, len(messages) + 1)]
