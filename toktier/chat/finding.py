"""Where the files of a model keep its chat template, and what its special tokens are called."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Mapping
from typing import Any

from toktier.errors import InvalidTemplate, UnknownTemplate
from toktier.families.configuration import NAMED_TOKENS
from toktier.families.formats.finding import CONFIGURATION

NAMED = "additional_chat_templates"
"""A folder with a template for each name, beside the one that is the default."""

DEFAULT = "default"


def templates_in(directory: pathlib.Path) -> tuple[dict[str, str], pathlib.Path]:
    """The chat templates of a model's directory, by name, and the file that has the default.

    Raises:
        UnknownTemplate: There is none, or nobody knows which of several.
        InvalidTemplate: A file cannot be read.
    """
    file = directory / "chat_template.json"
    if file.is_file() and (found := templates_of(file)):
        return found, file
    file = directory / "chat_template.jinja"
    named = {path.stem: text_of(path) for path in sorted((directory / NAMED).glob("*.jinja"))}
    if file.is_file():
        return {DEFAULT: text_of(file), **named}, file
    loose = sorted(directory.glob("*.jinja"))
    if len(loose) > 1:
        names = ", ".join(path.name for path in loose)
        raise UnknownTemplate(f"{directory} has several templates, {names}: give the path of one")
    if loose:
        return {DEFAULT: text_of(loose[0]), **named}, loose[0]
    if named:
        return named, directory / NAMED
    file = directory / CONFIGURATION
    if file.is_file() and (found := templates_of(file)):
        return found, file
    raise UnknownTemplate(
        f"no chat template in {directory}: looked for chat_template.json, chat_template.jinja, any *.jinja,"
        f" {NAMED}/*.jinja, {CONFIGURATION}; give the source or the path of one"
    )


def templates_of(file: pathlib.Path) -> dict[str, str]:
    """The chat templates of a JSON file, by name; none if it has no such field.

    Raises:
        InvalidTemplate: It cannot be read, or the field is something else.
    """
    field = _object(file).get("chat_template")
    if field is None:
        return {}
    if isinstance(field, str):
        return {DEFAULT: field}
    if isinstance(field, list):
        try:
            field = {entry["name"]: entry["template"] for entry in field}
        except (TypeError, KeyError):
            field = None
    if not isinstance(field, dict) or not all(isinstance(text, str) for pair in field.items() for text in pair):
        raise InvalidTemplate(f"{file}, field chat_template: neither a string nor a list of names and templates")
    return field


def special_tokens_in(directory: pathlib.Path) -> dict[str, str]:
    """What templates call the special tokens of a model: ``bos_token`` and so on.

    Raises:
        InvalidTemplate: A file cannot be read, or a token in it is something else.
    """
    file = directory / CONFIGURATION
    configuration = dict(_object(file)) if file.is_file() else {}
    legacy = directory / "special_tokens_map.json"
    if "added_tokens_decoder" not in configuration and legacy.is_file():
        configuration |= _object(legacy)
    named = configuration.get("extra_special_tokens")
    if isinstance(named, Mapping):
        configuration |= named
    names = [*NAMED_TOKENS, *(name for name in configuration if name not in NAMED_TOKENS and name.endswith("_token"))]
    names += [name for name in named or () if name not in names] if isinstance(named, Mapping) else []
    found = {name: _content(configuration.get(name)) for name in names}
    return {name: content for name, content in found.items() if content is not None}


def text_of(file: pathlib.Path) -> str:
    """What is in a file of text.

    Raises:
        InvalidTemplate: It is no UTF-8, or cannot be read.
    """
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidTemplate(f"{file}: {error}") from None


def _object(file: pathlib.Path) -> dict[str, Any]:
    try:
        read = json.loads(text_of(file))
    except json.JSONDecodeError as error:
        raise InvalidTemplate(f"{file}: not JSON: {error}") from None
    if not isinstance(read, dict):
        raise InvalidTemplate(f"{file}: not a JSON object")
    return read


def _content(token: Any) -> str | None:
    """The text of a token, which is written as a string or with its flags."""
    content = token.get("content") if isinstance(token, Mapping) else token
    return content if isinstance(content, str) else None
