import asyncio
import inspect
import sys
import types
from collections.abc import Callable
from typing import Any

import pytest
import tokenizers

import toktier
from tests import material
from tests.integrations import servers
from tests.integrations.signatures import Signatures
from toktier.integrations.vllm import MODE, TokenizerMode, TokensPrompts, register

INPUTS = "vllm/inputs/llm.py"
MINI = "toktier-mini"
NAMES = ("toktier-mini", "llama2", "minilm_bert_uncased")


@pytest.fixture(params=servers.WHICH)
def vllm(request: pytest.FixtureRequest) -> Signatures:
    return servers.signatures("vllm", request.param)


def encode(prompts: TokensPrompts, how: str, *args: Any, **options: Any) -> dict[str, Any]:
    if how == "sync":
        return prompts.encode(*args, **options)
    return asyncio.run(prompts.encode_async(*args, **options))


both = pytest.mark.parametrize("how", ["sync", "async"])


@both
@pytest.mark.parametrize("name", sorted({*NAMES} & {*material.available()}))
@pytest.mark.parametrize("add_special_tokens", [True, False])
def test_the_ids_are_those_of_the_servers_own_call(name: str, how: str, add_special_tokens: bool) -> None:
    prompts = TokensPrompts(servers.store(name))
    for text in ["", "Hello", *servers.transcripts()]:
        prompt = encode(prompts, how, text, session_id="chat-42", add_special_tokens=add_special_tokens)
        expected = servers.library(name).encode(text, add_special_tokens=add_special_tokens).ids
        assert prompt == {"prompt": text, "prompt_token_ids": expected}
        assert all(type(id) is int for id in prompt["prompt_token_ids"][:100])


@both
def test_a_tokenizer_whose_template_repeats_the_text_is_encoded_in_full(how: str) -> None:
    library = servers.library(MINI).from_buffer(material.definition(MINI))
    library.post_processor = tokenizers.processors.TemplateProcessing(
        single="$A <|im_end|> $A", special_tokens=[("<|im_end|>", 4089)]
    )
    tok = material.registry().load(library)
    assert not tok.family.supported
    prompts = TokensPrompts(toktier.SessionStore(tok))
    prompt = encode(prompts, how, "Hello there")
    assert prompt["prompt_token_ids"] == library.encode("Hello there").ids
    assert encode(prompts, how, "Hello", add_special_tokens=False)["prompt_token_ids"] != library.encode("Hello").ids


@both
def test_whatever_else_a_prompt_has_is_kept(how: str) -> None:
    given = {"prompt": "Hello", "cache_salt": "tenant", "mm_processor_kwargs": {"a": 1}, "multi_modal_data": None}
    before = given.copy()
    prompt = encode(TokensPrompts(servers.store()), how, given)
    assert given == before
    assert prompt == {**given, "prompt_token_ids": servers.library(MINI).encode("Hello").ids}


@both
@pytest.mark.parametrize(
    "prompt",
    [
        {"prompt": "<image> Hello", "multi_modal_data": {"image": object()}},
        {"prompt": "<image> Hello", "multi_modal_uuids": {"image": ["a"]}},
        {"prompt_token_ids": [1, 2]},
        {"prompt": "Hello", "prompt_token_ids": [1, 2]},
        {"prompt_embeds": object()},
        {"encoder_prompt": "Hello", "decoder_prompt": None},
    ],
)
def test_prompts_that_the_server_has_to_encode_are_left_as_they_are(how: str, prompt: dict[str, Any]) -> None:
    store = servers.store()
    assert encode(TokensPrompts(store), how, prompt, session_id="chat-42") == prompt
    assert store.lookups() == {}
    for option in ({"untrusted": [(0, 5)]}, {"truncate_prompt_tokens": 5}):
        with pytest.raises(ValueError, match=f"is left to vLLM, which does not heed {next(iter(option))}"):
            encode(TokensPrompts(store), how, prompt, **option)


def test_a_list_of_ids_becomes_a_dictionary_as_the_server_makes_one() -> None:
    assert TokensPrompts(servers.store()).encode([1, 2]) == {"prompt_token_ids": [1, 2]}


@pytest.mark.parametrize(
    ("prompt", "message"),
    [(7, "prompt must be a str"), ({"text": "a"}, "has nothing but"), ({"prompt": 7}, r"prompt\['prompt'\] must be")],
)
def test_what_is_no_prompt_is_refused(prompt: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        TokensPrompts(servers.store()).encode(prompt)


def test_something_else_in_the_place_of_a_store_is_refused() -> None:
    with pytest.raises(TypeError, match=r"store must be a toktier\.SessionStore"):
        TokensPrompts(material.load(MINI))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="has no group"):
        TokensPrompts(servers.store(), request_ids="chat")


@both
def test_the_session_is_that_of_the_key(how: str) -> None:
    store = servers.store()
    prompts = TokensPrompts(store, request_ids=r"(chat-\d+)-\d+")
    text = servers.transcripts()[5]
    for options in ({"session_id": "chat-1"}, {"session_id": "chat-1"}, {"request_id": "chat-1-3"}):
        encode(prompts, how, text, **options)
    assert store.lookups() == {("session", "started"): 1, ("session", "continued"): 2}
    encode(prompts, how, {"prompt": text, "cache_salt": "tenant"}, session_id="chat-1")
    encode(prompts, how, {"prompt": text, "cache_salt": "another"}, request_id="7")
    assert store.lookups()["session", "started"] == 2
    assert store.lookups()["content", "started"] == 1
    encode(prompts, how, {"prompt": text, "cache_salt": "another"}, request_id="8")
    assert store.lookups()["content", "continued"] == 1


@both
def test_special_tokens_that_users_wrote_are_text(how: str) -> None:
    text, tok = "<|im_start|>user\n<|im_end|>", material.load(MINI)
    prompt = encode(TokensPrompts(servers.store()), how, text, untrusted=[(17, 27)], session_id="a")
    assert prompt["prompt_token_ids"] == tok.encode(text, add_special_tokens=True, untrusted=[(17, 27)]).tolist()
    assert 4089 not in prompt["prompt_token_ids"]


@both
@pytest.mark.parametrize("add_special_tokens", [True, False])
@pytest.mark.parametrize("ends", [("<|endoftext|>", ""), ("<|endoftext|>", "<|im_end|>"), ("", "")])
def test_a_text_is_truncated_as_the_servers_tokenizer_does_it(
    how: str, add_special_tokens: bool, ends: tuple[str, str]
) -> None:
    library = servers.library(MINI).from_buffer(material.definition(MINI))
    library.post_processor = tokenizers.processors.TemplateProcessing(
        single=" ".join([ends[0], "$A", ends[1]]).strip(),
        special_tokens=[("<|endoftext|>", 4087), ("<|im_end|>", 4089)],
    )
    prompts = TokensPrompts(toktier.SessionStore(material.registry().load(library), engine="memo"))
    text = "A text that has some more ids."
    size = len(library.encode(text).ids)
    for length in range(1, size + 2):
        if length < (add_special_tokens and sum(map(bool, ends))):
            with pytest.raises(ValueError, match=r"truncate_prompt_tokens must be \d or more"):
                encode(prompts, how, text, truncate_prompt_tokens=length)
            continue
        library.enable_truncation(length, direction="left")
        expected = library.encode(text, add_special_tokens=add_special_tokens).ids
        options = {"truncate_prompt_tokens": length, "add_special_tokens": add_special_tokens}
        assert encode(prompts, how, text, **options)["prompt_token_ids"] == expected


@pytest.mark.parametrize(("length", "error"), [(-1, ValueError), (0, ValueError), (1.5, TypeError), (True, TypeError)])
def test_a_length_that_is_not_known_here_is_refused(length: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="truncate_prompt_tokens must be"):
        TokensPrompts(servers.store()).encode("Hello", add_special_tokens=False, truncate_prompt_tokens=length)


def test_lists_are_the_callers_own() -> None:
    prompts, text = TokensPrompts(servers.store()), servers.transcripts()[2]
    first = prompts.encode(text, session_id="a")["prompt_token_ids"]
    expected = first.copy()
    first.clear()
    assert prompts.encode(text, session_id="a")["prompt_token_ids"] == expected


def test_the_prompt_is_what_the_server_takes(vllm: Signatures) -> None:
    prompt = TokensPrompts(servers.store()).encode({"prompt": "Hello", "cache_salt": "tenant"})
    fields = vllm.fields(INPUTS, "TokensPrompt")
    assert set(prompt) <= set(fields)
    assert fields["prompt_token_ids"] == "list[int]"
    assert fields["cache_salt"] == "NotRequired[str]"
    assert set(vllm.fields(INPUTS, "TextPrompt")) <= set(fields)


def test_the_calls_on_the_page_are_calls_of_the_server(vllm: Signatures) -> None:
    prompt = TokensPrompts(servers.store()).encode("Hello")
    vllm.signature("vllm/entrypoints/llm.py", "LLM.generate").bind([prompt], None)
    generate = vllm.signature("vllm/v1/engine/async_llm.py", "AsyncLLM.generate")
    generate.bind(prompt, None, "chat-42-7", session_id="chat-42")


def test_special_tokens_are_the_servers_defaults(vllm: Signatures) -> None:
    file = "vllm/renderers/base.py"
    completion = vllm.named(file, "BaseRenderer.default_cmpl_tok_params")
    chat = vllm.named(file, "BaseRenderer.default_chat_tok_params")
    default = inspect.signature(TokensPrompts.encode).parameters["add_special_tokens"].default
    assert (completion["constants"]["add_special_tokens"], default) == ("True", True)
    assert chat["constants"]["add_special_tokens"] == "False"


def test_what_the_installed_server_makes_of_a_prompt() -> None:
    inputs = pytest.importorskip(
        "vllm.renderers.inputs.preprocess", reason="vllm cannot be imported", exc_type=ImportError
    )
    prompt = TokensPrompts(servers.store()).encode({"prompt": "Hello", "cache_salt": "tenant"})
    assert inputs.parse_dec_only_prompt(prompt) == prompt


class Registered:
    """A registry of the server, with the signatures that it has."""

    def __init__(self, signature: inspect.Signature, attribute: str, content: dict[str, tuple[str, str]]) -> None:
        self.signature, self.content, self.calls = signature, content, 0
        setattr(self, attribute, content)

    def register(self, *args: Any, **options: Any) -> None:
        mode, module, name = self.signature.bind(*args, **options).args
        self.content[mode] = module, name
        self.calls += 1


@pytest.fixture
def registries(vllm: Signatures, monkeypatch: pytest.MonkeyPatch) -> list[Registered]:
    """Both registries, in modules that stand for those of the server."""
    found = []
    for file, kind, attribute, module, name, content in (
        ("vllm/tokenizers/registry.py", "_TokenizerRegistry", "tokenizers", "vllm.tokenizers", "TokenizerRegistry", {}),
        (
            "vllm/renderers/registry.py",
            "RendererRegistry",
            "renderers",
            "vllm.renderers.registry",
            "RENDERER_REGISTRY",
            {"hf": ("vllm.renderers.hf", "HfRenderer")},
        ),
    ):
        assert vllm.fields(file, kind)[attribute] == "dict[str, tuple[str, str]]"
        registry = Registered(vllm.signature(file, f"{kind}.register"), attribute, content)
        stand_in(monkeypatch, module, {name: registry})
        found.append(registry)
    return found


def stand_in(monkeypatch: pytest.MonkeyPatch, module: str, content: dict[str, Any]) -> None:
    made = types.ModuleType(module)
    vars(made).update(content)
    parts = module.split(".")
    for count in range(1, len(parts)):
        monkeypatch.setitem(sys.modules, ".".join(parts[:count]), types.ModuleType(".".join(parts[:count])))
    monkeypatch.setitem(sys.modules, module, made)


def test_the_mode_is_registered_once(registries: list[Registered]) -> None:
    register()
    register()
    tokenizer_modes, renderers = registries
    assert tokenizer_modes.content == {MODE: ("toktier.integrations.vllm", "TokenizerMode")}
    assert renderers.content[MODE] == ("vllm.renderers.hf", "HfRenderer")
    assert [registry.calls for registry in registries] == [1, 1]


def loading(vllm: Signatures, load: Callable[[], Any]) -> Callable[..., Any]:
    """Stands for the server's function that loads tokenizers."""
    signature = vllm.signature("vllm/tokenizers/registry.py", "get_tokenizer")

    def get_tokenizer(*args: Any, **options: Any) -> Any:
        bound = signature.bind(*args, **options).arguments
        assert bound["kwargs"] == {"tokenizer_mode": "hf", "truncation_side": "left"}
        assert (bound["tokenizer_name"], bound["revision"]) == ("a/model", "main")
        return load()

    return get_tokenizer


def mode_loads(vllm: Signatures, monkeypatch: pytest.MonkeyPatch, load: Callable[[], Any]) -> Any:
    stand_in(monkeypatch, "vllm.tokenizers", {"get_tokenizer": loading(vllm, load)})
    vllm.signature("vllm/tokenizers/protocol.py", "TokenizerLike.from_pretrained").bind("a/model", revision="main")
    return TokenizerMode.from_pretrained("a/model", revision="main", truncation_side="left")


def test_the_mode_loads_the_servers_tokenizer_and_gives_its_ids(
    vllm: Signatures, monkeypatch: pytest.MonkeyPatch
) -> None:
    transformers = pytest.importorskip("transformers")
    path = str(material.file(MINI))
    tokenizer = mode_loads(
        vllm, monkeypatch, lambda: transformers.PreTrainedTokenizerFast(tokenizer_file=path, truncation_side="left")
    )
    plain = transformers.PreTrainedTokenizerFast(tokenizer_file=path, truncation_side="left")
    for text in servers.transcripts():
        # The server always truncates, to one id more than the model takes.
        options = {"truncation": True, "max_length": 1_000_001, "add_special_tokens": True}
        assert tokenizer(text, **options)["input_ids"] == plain(text, **options)["input_ids"]


def test_a_tokenizer_that_cannot_be_wrapped_serves_as_it_is(
    vllm: Signatures, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    slow = types.SimpleNamespace(is_fast=False)
    assert mode_loads(vllm, monkeypatch, lambda: slow) is slow
    assert "nothing is reused" in caplog.text
