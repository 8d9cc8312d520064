"""``import toktier`` is quiet, and brings no more than a session needs."""

from __future__ import annotations

import subprocess
import sys

import pytest

import toktier

NEEDLESS = (
    *("asyncio", "sqlite3", "ssl", "email", "importlib.metadata", "importlib.resources", "unittest"),
    *("jinja2", "transformers", "huggingface_hub", "cupy", "gigatoken", "prometheus_client", "click", "rich"),
    *("toktier.chat", "toktier.store", "toktier.shelf", "toktier.saver", "toktier.archive", "toktier.prefixes"),
    *("toktier.cli", "toktier.view", "toktier.replay", "toktier.bench", "toktier.campaign", "toktier.integrations"),
    *("toktier.verify", "toktier.campaign.reproduction", "toktier.metrics", "toktier.engines.battery"),
    *("toktier.engines.tiktoken_reference", "toktier.families.formats.pair", "toktier.families.formats.ranked"),
    *("toktier.families.configuration", "toktier.gpu.engine", "toktier.gpu.encoder", "toktier.gpu.tables"),
)
"""What costs time, or is not installed everywhere, and is for later."""


def loaded(program: str) -> set[str]:
    """The modules that are there after a program, in a new interpreter in which warnings are errors."""
    program += "\nimport sys; print(*sys.modules)"
    command = [sys.executable, "-W", "error", "-c", program]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    return {*done.stdout.split()}


def test_importing_toktier_brings_nothing_that_is_for_later() -> None:
    modules = loaded("import toktier")
    assert {"toktier.session", "toktier.registry", "tokenizers", "numpy"} <= modules
    assert sorted(modules & {*NEEDLESS}) == []


def test_what_is_for_later_is_noticed() -> None:
    assert {"toktier.store", "toktier.shelf"} <= loaded("from toktier import SessionStore") & {*NEEDLESS}


@pytest.mark.parametrize("name", toktier.__all__)
def test_every_public_name_is_there_by_itself(name: str) -> None:
    assert name in dir(toktier)
    assert getattr(toktier, name).__module__.startswith("toktier.")


def test_public_names_can_be_imported_one_by_one_and_all_together() -> None:
    loaded(f"from toktier import {', '.join(toktier.__all__)}\nassert ChatSession and SessionStore and Usage")
    loaded("from toktier import *\nassert ChatSession and SessionStore and Usage")


@pytest.mark.parametrize("name", ["chat", "store", "shelf", "session", "errors"])
def test_the_modules_of_public_names_are_there_once_toktier_is(name: str) -> None:
    assert name in dir(toktier)
    assert f"toktier.{name}" in loaded(f"import toktier\nassert toktier.{name}.__name__ == 'toktier.{name}'")


def test_a_name_that_does_not_exist_is_an_error_that_names_it() -> None:
    with pytest.raises(AttributeError, match="module 'toktier' has no attribute 'Sesion'"):
        toktier.Sesion  # type: ignore[attr-defined]  # noqa: B018
