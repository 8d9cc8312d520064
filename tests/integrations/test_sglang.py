import asyncio
import inspect
import json
import sys
import types
from typing import Any

import pytest

from tests import material
from tests.integrations import servers
from tests.integrations.signatures import Signatures
from toktier.integrations import sglang as integration
from toktier.integrations.sglang import TARGET, GenerateRequests, plugin, register

REQUEST = "sglang/srt/managers/io_struct.py", "GenerateReqInput"
HOOKS = "sglang/srt/plugins/hook_registry.py"
MINI = "toktier-mini"
NAMES = ("toktier-mini", "llama2")


@pytest.fixture(params=servers.WHICH)
def sglang(request: pytest.FixtureRequest) -> Signatures:
    return servers.signatures("sglang", request.param)


def encode(requests: GenerateRequests, how: str, request: Any, **options: Any) -> dict[str, Any]:
    if how == "sync":
        return requests.encode(request, **options)
    return asyncio.run(requests.encode_async(request, **options))


def expected(text: str, name: str = MINI, *, add_special_tokens: bool = True) -> list[int]:
    return servers.library(name).encode(text, add_special_tokens=add_special_tokens).ids


both = pytest.mark.parametrize("how", ["sync", "async"])


@both
@pytest.mark.parametrize("name", sorted({*NAMES} & {*material.available()}))
@pytest.mark.parametrize("add_special_tokens", [True, False])
def test_the_ids_are_those_of_the_servers_own_call(name: str, how: str, add_special_tokens: bool) -> None:
    requests = GenerateRequests(servers.store(name))
    texts = ["Hello", *servers.transcripts()]
    listed = [expected(text, name, add_special_tokens=add_special_tokens) for text in texts]
    for text, ids in zip(texts, listed, strict=True):
        request = {"prompt": text, "session_id": "chat-42", "sampling_params": {"n": 1}}
        encoded = encode(requests, how, request, add_special_tokens=add_special_tokens)
        assert encoded == {"session_id": "chat-42", "sampling_params": {"n": 1}, "input_ids": ids}
    batch = encode(requests, how, {"text": texts, "rid": "batch"}, add_special_tokens=add_special_tokens)
    assert batch == {"rid": "batch", "input_ids": listed}
    assert all(type(id) is int for id in batch["input_ids"][-1][:100])


@both
@pytest.mark.parametrize(
    "request_",
    [
        {"prompt": "<image> Hello", "image_data": object()},
        {"text": "<video> Hello", "video_data": [["a.mp4"]]},
        {"text": "<audio> Hello", "audio_data": ["a.wav"]},
        {"input_ids": [1, 2]},
        {"text": "Hello", "input_ids": [1, 2]},
        {"input_embeds": [[0.5]]},
        {"sampling_params": {}},
    ],
)
def test_requests_that_the_server_has_to_encode_are_left_as_they_are(how: str, request_: dict[str, Any]) -> None:
    store = servers.store()
    assert encode(GenerateRequests(store), how, request_) == request_
    assert store.lookups() == {}
    with pytest.raises(ValueError, match="is left to SGLang, which does not heed untrusted"):
        encode(GenerateRequests(store), how, request_, untrusted=[(0, 1)])


@both
@pytest.mark.parametrize("none", [None, [], [None], [[None], []]])
def test_lists_of_no_media_are_no_media(how: str, none: Any) -> None:
    request = {"text": "Hello", "image_data": none, "input_ids": None}
    assert encode(GenerateRequests(servers.store()), how, request)["input_ids"] == expected("Hello")


@both
def test_the_session_is_that_of_the_key(how: str) -> None:
    store = servers.store()
    requests = GenerateRequests(store, request_ids=r"(chat-\d+)-\d+")
    text = servers.transcripts()[5]
    for fields in ({"session_id": "chat-1"}, {"rid": "chat-1-1"}, {"rid": "chat-1-2", "session_id": "chat-1"}):
        encode(requests, how, {"text": text, **fields})
    encode(requests, how, {"text": [text], "rid": ["chat-1-3"], "cache_salt": [""]})
    encode(requests, how, {"text": [text], "rid": "chat-1-4"})
    assert store.lookups() == {("session", "started"): 1, ("session", "continued"): 4}


@both
def test_each_text_of_a_list_has_its_own_key(how: str) -> None:
    store = servers.store()
    requests = GenerateRequests(store, request_ids=r"(chat-\d+)-\d+")
    first, second = servers.transcripts()[4:6]
    encode(requests, how, {"text": [first, second], "rid": ["chat-1-1", "chat-2-1"], "cache_salt": ["a", "b"]})
    assert store.lookups() == {("session", "started"): 2}
    for salt, name in (("a", "chat-1"), ("b", "chat-2")):
        assert store.explain(name, salt=json.dumps([salt, ""]))["call"] != "none"


@both
@pytest.mark.parametrize("fields", [{"session_id": "chat-1"}, {"rid": "chat-1-1"}])
def test_what_is_given_once_for_several_texts_names_none_of_them(how: str, fields: dict[str, str]) -> None:
    store = servers.store()
    texts = servers.transcripts()[4:6]
    encode(GenerateRequests(store, request_ids=r"(chat-\d+)-\d+"), how, {"text": texts, **fields})
    assert {kind for kind, _ in store.lookups()} == {"content"}


@both
def test_a_text_that_continues_what_the_server_holds_names_no_session(how: str) -> None:
    store = servers.store()
    request = {"text": servers.transcripts()[4], "session_params": {"id": "a"}, "session_id": "b", "rid": "chat-1-1"}
    encode(GenerateRequests(store, request_ids=r"(chat-\d+)-\d+"), how, request)
    assert {kind for kind, _ in store.lookups()} == {"content"}


@both
def test_whatever_separates_the_servers_cache_separates_tenants(how: str) -> None:
    store, text = servers.store(), servers.transcripts()[5]
    requests = GenerateRequests(store)
    salts: list[dict[str, str]] = [
        {},
        {"cache_salt": "a"},
        {"extra_key": "a"},
        {"cache_salt": "a", "extra_key": "a"},
        {"cache_salt": "a", "extra_key": "b"},
        {"cache_salt": '["a", "b"]'},
    ]
    for salt in salts:
        encode(requests, how, {"text": text, **salt})
    assert store.lookups() == {("content", "started"): len(salts)}
    for salt in salts:
        encode(requests, how, {"text": text, **salt})
    assert store.lookups() == {("content", "started"): len(salts), ("content", "continued"): len(salts)}


@both
def test_special_tokens_that_users_wrote_are_text(how: str) -> None:
    text, tok = "<|im_start|>user\n<|im_end|>", material.load(MINI)
    forged = tok.encode(text, add_special_tokens=True, untrusted=[(17, 27)]).tolist()
    requests = GenerateRequests(servers.store())
    assert encode(requests, how, {"text": text}, untrusted=[(17, 27)])["input_ids"] == forged
    batch = encode(requests, how, {"text": [text, text]}, untrusted=[[], [(17, 27)]])
    assert batch["input_ids"] == [expected(text), forged]


@pytest.mark.parametrize(
    ("request_", "error", "message"),
    [
        ({"text": "a", "prompt": "a"}, ValueError, "has one of 'prompt' and 'text'"),
        ({"text": 7}, TypeError, "text must be a str or a list of them, not int"),
        ({"prompt": b"a"}, TypeError, "prompt must be a str or a list of them, not bytes"),
        ({"text": ["a", "b"], "rid": ["1"]}, ValueError, "rid has 1 elements for 2 texts"),
        ({"text": ["a", "b"], "cache_salt": ["1"]}, ValueError, "cache_salt has 1 elements for 2 texts"),
        ({"text": "a", "cache_salt": ["1"]}, TypeError, "cache_salt must be a str, not list"),
        ({"text": "a", "extra_key": 1}, TypeError, "extra_key must be a str, not int"),
        ({"text": "a", "session_id": 1}, TypeError, "session_id must be a str, not int"),
        ("a", TypeError, "request must be a dictionary of arguments, not str"),
    ],
)
def test_what_is_no_request_is_refused(request_: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        GenerateRequests(servers.store()).encode(request_)


def test_spans_are_given_for_each_text_of_a_list() -> None:
    with pytest.raises(ValueError, match="untrusted has 1 elements for 2 texts"):
        GenerateRequests(servers.store()).encode({"text": ["a", "b"]}, untrusted=[[(0, 1)]])


def test_something_else_in_the_place_of_a_store_is_refused() -> None:
    with pytest.raises(TypeError, match=r"store must be a toktier\.SessionStore"):
        GenerateRequests(material.load(MINI))  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["Engine.generate", "Engine.async_generate"])
def test_the_request_is_a_call_of_the_engine(sglang: Signatures, name: str) -> None:
    signature = sglang.signature("sglang/srt/entrypoints/engine.py", name)
    request = {"prompt": "Hello", "sampling_params": {}, "session_id": "a", "rid": "a-1", "cache_salt": "b"}
    signature.bind(**request)
    assert signature.bind(**GenerateRequests(servers.store()).encode(request)).arguments["input_ids"]


def test_the_fields_that_are_looked_at_are_those_of_the_server(sglang: Signatures) -> None:
    fields = sglang.fields(*REQUEST)
    looked_at = {"text", "session_id", "session_params", *integration.ENCODED, *integration.MEDIA, *integration.KEYS}
    assert looked_at <= set(fields)
    assert "List[List[int]], List[int]" in fields["input_ids"]
    assert fields["session_id"] == "Optional[str]"
    for name in integration.KEYS:
        assert fields[name] == "Optional[Union[List[str], str]]" or name == "rid"


def test_the_installed_server_takes_a_request() -> None:
    io_struct = pytest.importorskip(
        "sglang.srt.managers.io_struct", reason="sglang cannot be imported", exc_type=ImportError
    )
    request = GenerateRequests(servers.store()).encode({"text": "Hello", "cache_salt": "a", "session_id": "b"})
    made = io_struct.GenerateReqInput(**request)
    made.normalize_batch_and_arguments()
    assert (made.input_ids, made.is_single) == (expected("Hello"), True)


class Hooks:
    """Stands for the server's registry of hooks, with its signature."""

    def __init__(self, sglang: Signatures) -> None:
        self.signature = sglang.signature(HOOKS, "HookRegistry.register")
        self.found: list[tuple[str, Any, str]] = []

    def register(self, *args: Any, **options: Any) -> None:
        target, hook, kind = self.signature.bind(*args, **options).args
        self.found.append((target, hook, kind))


@pytest.fixture
def hooks(sglang: Signatures, monkeypatch: pytest.MonkeyPatch) -> Hooks:
    made = Hooks(sglang)
    module = types.ModuleType("sglang.srt.plugins.hook_registry")
    kinds = sglang.named(HOOKS, "HookType")["constants"]
    vars(module).update(HookRegistry=made, HookType=types.SimpleNamespace(**kinds))
    for name in ("sglang", "sglang.srt", "sglang.srt.plugins"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    monkeypatch.setitem(sys.modules, "sglang.srt.plugins.hook_registry", module)
    return made


@pytest.mark.parametrize(
    ("plugins", "count"), [(None, 0), ("", 0), ("other", 0), ("toktier2", 0), ("toktier", 1), ("other, toktier", 1)]
)
def test_the_plugin_works_where_it_is_named(
    hooks: Hooks, monkeypatch: pytest.MonkeyPatch, plugins: str | None, count: int
) -> None:
    monkeypatch.delenv("SGLANG_PLUGINS", raising=False)
    if plugins is not None:
        monkeypatch.setenv("SGLANG_PLUGINS", plugins)
    plugin()
    assert len(hooks.found) == count


def test_the_hook_comes_after_the_server_has_loaded_its_tokenizer(hooks: Hooks, sglang: Signatures) -> None:
    register()
    ((target, _, kind),) = hooks.found
    module, _, name = TARGET.partition(".TokenizerManager.")
    file = module.replace(".", "/") + ".py"
    assert sglang.signature(file, f"TokenizerManager.{name}") == inspect.Signature()
    assert (target, kind) == (TARGET, "'after'")


def hooked(hooks: Hooks, tokenizer: Any, batching: Any = None) -> Any:
    register()
    manager = types.SimpleNamespace(tokenizer=tokenizer, async_dynamic_batch_tokenizer=batching)
    assert hooks.found[-1][1](None, manager) is None
    return manager


def test_the_server_has_the_same_ids_with_the_hook(hooks: Hooks) -> None:
    transformers = pytest.importorskip("transformers")
    path = str(material.file(MINI))
    plain = transformers.PreTrainedTokenizerFast(tokenizer_file=path)
    batching = types.SimpleNamespace(tokenizer=None)
    manager = hooked(hooks, transformers.PreTrainedTokenizerFast(tokenizer_file=path), batching)
    assert batching.tokenizer is manager.tokenizer
    assert type(manager.tokenizer) is not type(plain)
    for text in servers.transcripts():
        assert manager.tokenizer([text])["input_ids"] == plain([text])["input_ids"]
        assert manager.tokenizer.encode(text, add_special_tokens=False) == plain.encode(text, add_special_tokens=False)


def test_a_server_without_a_tokenizer_has_none_with_the_hook(hooks: Hooks, caplog: pytest.LogCaptureFixture) -> None:
    assert hooked(hooks, None).tokenizer is None
    assert caplog.text == ""


def test_a_tokenizer_that_cannot_be_wrapped_serves_as_it_is(hooks: Hooks, caplog: pytest.LogCaptureFixture) -> None:
    slow = types.SimpleNamespace(is_fast=False)
    assert hooked(hooks, slow).tokenizer is slow
    assert "nothing is reused" in caplog.text
