"""Templates and special tokens are found where ``transformers`` and serving front ends find them."""

from __future__ import annotations

import json
import pathlib
from typing import Any

import jinja2
import pytest

from tests import material
from tests.chat.templates import WEATHER, library, said
from toktier.chat import ChatTemplate
from toktier.errors import InvalidTemplate, UnknownTemplate


def folder_of(path: pathlib.Path, configuration: dict[str, Any], **files: str) -> pathlib.Path:
    path.mkdir(parents=True, exist_ok=True)
    (path / "tokenizer.json").write_bytes(material.definition("toktier-mini"))
    (path / "tokenizer_config.json").write_text(json.dumps(configuration))
    for name, content in files.items():
        file = path / name.replace("__", "/").replace("_json", ".json").replace("_jinja", ".jinja")
        file.parent.mkdir(exist_ok=True)
        file.write_text(content, encoding="utf-8")
    return path


ADDED = {"__type": "AddedToken", "content": "<|im_end|>", "lstrip": False, "normalized": False, "rstrip": False}
NAMED = [{"name": "default", "template": "default"}, {"name": "tool_use", "template": "{{ tools[0].function.name }}"}]
SHOW = "{{ bos_token }}|{{ eos_token }}|{{ pad_token }}|{{ image_token }}|{{ boi }}|{{ unk_token }}"


@pytest.mark.parametrize(
    ("configuration", "files"),
    [
        ({"chat_template": SHOW}, {}),
        ({"chat_template": SHOW, "bos_token": "<|endoftext|>", "eos_token": ADDED, "pad_token": None}, {}),
        ({"chat_template": SHOW, "image_token": "<think>", "extra_special_tokens": {"boi": "</think>"}}, {}),
        (
            {"chat_template": SHOW, "eos_token": "</think>"},
            {"special_tokens_map_json": json.dumps({"eos_token": ADDED})},
        ),
        (
            {
                "chat_template": SHOW,
                "eos_token": "</think>",
                "added_tokens_decoder": {"4088": {"content": "<|im_start|>"}},
            },
            {"special_tokens_map_json": json.dumps({"eos_token": "<|im_end|>", "bos_token": "<|im_start|>"})},
        ),
        ({"chat_template": SHOW, "additional_special_tokens": ["<|im_end|>"], "bos_token": "<|im_start|>"}, {}),
        ({"chat_template": NAMED}, {}),
        ({"chat_template": "configuration"}, {"chat_template_jinja": "file {{ messages[0].content }}\n\n"}),
        (
            {"chat_template": NAMED},
            {"chat_template_jinja": "file", "additional_chat_templates__tool_use_jinja": "{{ tools | length }} tools"},
        ),
    ],
)
def test_templates_and_tokens_of_a_directory_are_those_of_transformers(
    tmp_path: pathlib.Path, configuration: dict[str, Any], files: dict[str, str]
) -> None:
    folder = folder_of(tmp_path, configuration, **files)
    theirs = library().PreTrainedTokenizerFast.from_pretrained(folder)
    mine = ChatTemplate.load(folder)
    assert mine.variables == theirs.special_tokens_map
    for tools in (None, [], [WEATHER]):
        try:
            text = theirs.apply_chat_template([said("user", "x")], tools=tools, tokenize=False)
        except jinja2.TemplateError:
            continue
        assert mine.render([said("user", "x")], tools=tools).text == text


def test_files_are_looked_for_in_the_usual_order(tmp_path: pathlib.Path) -> None:
    configuration = {"chat_template": "of the configuration"}
    messages = [said("user", "x")]

    def text(folder: pathlib.Path) -> str:
        return ChatTemplate.load(folder).render(messages).text

    assert text(folder_of(tmp_path, configuration)) == "of the configuration"
    assert text(folder_of(tmp_path, configuration, any_jinja="any")) == "any"
    assert text(folder_of(tmp_path, configuration, chat_template_jinja="jinja")) == "jinja"
    assert text(folder_of(tmp_path, configuration, chat_template_json="{}")) == "jinja"
    assert text(folder_of(tmp_path, configuration, chat_template_json='{"chat_template": "json"}')) == "json"
    chosen = ChatTemplate.load(tmp_path, template="argument {{ eos_token }}")
    assert chosen.render(messages, eos_token="<>").text == "argument <>"
    for path in (tmp_path / "chat_template.json", tmp_path / "any.jinja", str(tmp_path / "tokenizer_config.json")):
        assert ChatTemplate.of(path).render(messages).text in {"json", "any", "of the configuration"}


def test_a_template_can_be_chosen_by_its_name(tmp_path: pathlib.Path) -> None:
    folder = folder_of(tmp_path, {"chat_template": NAMED})
    messages = [said("user", "x")]
    assert ChatTemplate.load(folder).names == ("default", "tool_use")
    assert ChatTemplate.load(folder, name="default").render(messages, tools=[WEATHER]).text == "default"
    with pytest.raises(UnknownTemplate, match=r"no template 'rag', but 'default', 'tool_use'"):
        ChatTemplate.load(folder, name="rag")
    nameless = ChatTemplate({"rag": "a", "tool_use": "b"})
    assert nameless.render(messages, tools=[]).text == "b"
    with pytest.raises(UnknownTemplate, match=r"no default template, but 'rag', 'tool_use'"):
        nameless.render(messages)


def test_what_cannot_be_found_is_said_with_the_places(tmp_path: pathlib.Path) -> None:
    with pytest.raises(UnknownTemplate, match=r"no chat template in .*chat_template\.json.*tokenizer_config\.json"):
        ChatTemplate.load(folder_of(tmp_path / "none", {}))
    with pytest.raises(UnknownTemplate, match=r"several templates, a\.jinja, b\.jinja: give the path of one"):
        ChatTemplate.load(folder_of(tmp_path / "two", {}, a_jinja="", b_jinja=""))
    with pytest.raises(UnknownTemplate, match=r"there is no '.*missing'"):
        ChatTemplate.load(tmp_path / "missing")
    with pytest.raises(UnknownTemplate, match=r"tokenizer\.json has no field chat_template"):
        ChatTemplate.load(tmp_path / "none" / "tokenizer.json")
    with pytest.raises(InvalidTemplate, match="the template: no template at all"):
        ChatTemplate({})


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("[", "not JSON"),
        ("[]", "not a JSON object"),
        ('{"chat_template": 3}', "field chat_template: neither"),
        ('{"chat_template": [{"name": "x"}]}', "field chat_template: neither"),
        ('{"chat_template": {"x": 1}}', "field chat_template: neither"),
        ('{"chat_template": "{% if %}"}', r"chat_template\.json, line 1: "),
    ],
)
def test_a_broken_file_is_named(tmp_path: pathlib.Path, content: str, why: str) -> None:
    file = tmp_path / "chat_template.json"
    file.write_text(content)
    with pytest.raises(InvalidTemplate, match=why):
        ChatTemplate.load(file)


def test_a_file_that_is_no_text_is_named(tmp_path: pathlib.Path) -> None:
    (tmp_path / "a.jinja").write_bytes(b"\xff")
    with pytest.raises(InvalidTemplate, match=r"a\.jinja: .*utf-8"):
        ChatTemplate.load(tmp_path)
