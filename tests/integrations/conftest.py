"""What the tests of several integrations are given."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests import material
from toktier.registry import Registry

if TYPE_CHECKING:
    from tests.integrations.wrapping import Pair


@pytest.fixture
def shared_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is loaded without saying from where is loaded by the registry of all tests."""
    monkeypatch.setattr(Registry, "_default", material.registry())


@pytest.fixture
def mini() -> Pair:
    """A tokenizer of transformers, and the same one wrapped."""
    from tests.integrations.wrapping import plain  # transformers, which other integrations do without
    from toktier.integrations.transformers import wrap

    tokenizer = plain()
    return tokenizer, wrap(tokenizer)
