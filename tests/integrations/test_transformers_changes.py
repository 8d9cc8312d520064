"""A tokenizer that changes after it was wrapped, and texts for the library to encode: the ids are the library's."""

import copy
import logging
from collections.abc import Callable
from typing import Any

import pytest
import tokenizers
from tokenizers import AddedToken, models, normalizers, pre_tokenizers, processors
from transformers import BatchEncoding, PreTrainedTokenizerFast

import toktier
from tests.integrations.wrapping import LONG, Pair, assert_equal, calls, facts, plain, sessions
from toktier.integrations import reuse
from toktier.integrations.encodings import affixes
from toktier.integrations.transformers import REUSE, wrap
from toktier.integrations.watching import disagreement

pytestmark = pytest.mark.usefixtures("shared_registry")


# What changes a tokenizer later ---------------------------------------------------------------------------------------


def lower(tokenizer: Any) -> None:
    tokenizer.backend_tokenizer.normalizer = normalizers.Lowercase()


def prefix_space(tokenizer: Any) -> None:
    """In place: nobody assigns anything to the tokenizer."""
    for part in tokenizer.backend_tokenizer.pre_tokenizer:
        if isinstance(part, pre_tokenizers.ByteLevel):
            part.add_prefix_space = True


def other_model(tokenizer: Any) -> None:
    """With the same vocabulary and the same settings, but no merges."""
    backend = tokenizer.backend_tokenizer
    names = ("unk_token", "fuse_unk", "byte_fallback", "ignore_merges")
    settings = {name: getattr(backend.model, name) for name in names}
    backend.model = models.BPE(backend.get_vocab(with_added_tokens=False), [], **settings)


def other_backend(tokenizer: Any) -> None:
    backend = tokenizers.Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
    backend.normalizer = normalizers.Lowercase()
    tokenizer._tokenizer = backend


def setting(name: str, value: Any) -> Callable[[Any], None]:
    return lambda tokenizer: setattr(tokenizer, name, value)


CHANGES: dict[str, Callable[[Any], Any]] = {
    "a token is added": lambda tokenizer: tokenizer.add_tokens(["cat sat"]),
    "a token of the vocabulary is added": lambda tokenizer: tokenizer.add_tokens(["at"]),
    "a special token is added": lambda tokenizer: tokenizer.add_special_tokens({"cls_token": "mat"}),
    "a token has other flags": lambda tokenizer: tokenizer.add_tokens(
        [AddedToken("<|im_end|>", rstrip=True, special=True)]
    ),
    "a token is added behind its back": lambda tokenizer: tokenizer.backend_tokenizer.add_tokens(["cat sat"]),
    "the normalizer is replaced": lower,
    "the pre-tokenizer is replaced": lambda tokenizer: setattr(
        tokenizer.backend_tokenizer, "pre_tokenizer", pre_tokenizers.ByteLevel(add_prefix_space=True)
    ),
    "the pre-tokenizer is changed in place": prefix_space,
    "the post-processor is replaced": lambda tokenizer: setattr(
        tokenizer.backend_tokenizer, "post_processor", processors.BertProcessing(("c", 66), ("a", 64))
    ),
    "the post-processor is removed": lambda tokenizer: setattr(tokenizer.backend_tokenizer, "post_processor", None),
    "the model is replaced": other_model,
    "the model is set": lambda tokenizer: setattr(tokenizer.backend_tokenizer.model, "ignore_merges", True),
    "the library's tokenizer is replaced": other_backend,
    "special tokens become text": setting("split_special_tokens", True),
    "truncation is left": lambda tokenizer: tokenizer.backend_tokenizer.enable_truncation(5),
    "padding is left": lambda tokenizer: tokenizer.backend_tokenizer.enable_padding(length=3000),
    "special tokens are left text": lambda tokenizer: setattr(
        tokenizer.backend_tokenizer, "encode_special_tokens", True
    ),
    "the padding token is another one": setting("pad_token", "a"),
    "the padding side is another one": setting("padding_side", "left"),
    "the truncation side is another one": setting("truncation_side", "left"),
    "token types are wanted": setting("model_input_names", ["input_ids", "token_type_ids"]),
    "the template is another one": setting("chat_template", "{{ messages[0].content }}<|im_end|>"),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_what_changes_a_tokenizer_changes_its_ids(change: Callable[[Any], Any]) -> None:
    expected, wrapped = plain(), wrap(plain())  # each with a library's tokenizer of its own
    assert_equal((expected, wrapped), lambda each: each(LONG))
    change(expected)
    change(wrapped)
    for text in (LONG, [LONG[:-9], LONG]):
        for arguments in ({}, {"padding": True}, {"truncation": True, "max_length": 60}, {}):
            assert_equal((expected, wrapped), lambda each: each(text, **arguments))  # noqa: B023
    messages = [{"role": "user", "content": LONG}]
    assert_equal((expected, wrapped), lambda each: each.apply_chat_template(messages, return_dict=True))


def test_tokens_that_are_added_to_the_original_are_those_of_the_wrapped_one(mini: Pair) -> None:
    original, wrapped = mini
    before = wrapped(LONG)["input_ids"]
    original.add_tokens(["cat sat"])
    assert wrapped(LONG)["input_ids"] != before
    assert_equal(mini, lambda each: each(LONG))


def test_a_tokenizer_that_has_changed_is_derived_anew(mini: Pair) -> None:
    wrapped = mini[1]
    wrapped(LONG)
    store = vars(wrapped)[REUSE]._served.store
    wrapped.add_tokens(["cat sat"])
    wrapped(LONG)
    assert sessions(wrapped) == 1
    assert vars(wrapped)[REUSE]._served.store is not store


def test_one_that_only_adds_other_special_tokens_keeps_its_store(mini: Pair) -> None:
    wrapped = mini[1]
    wrapped(LONG)
    wrapped.backend_tokenizer.post_processor = processors.BertProcessing(("c", 66), ("a", 64))
    assert_equal(mini, lambda each: each(LONG, return_token_type_ids=True))
    assert vars(wrapped)[REUSE]._served.store.usage().started == 1


def test_one_that_changes_all_the_time_is_left_to_the_library(mini: Pair, caplog: pytest.LogCaptureFixture) -> None:
    wrapped = mini[1]
    for number in range(reuse.CHANGES + 1):
        wrapped.add_tokens([f"cat{number}"])
        assert_equal(mini, lambda each: each(LONG))
    assert sessions(wrapped) == 0
    assert "changes too often" in caplog.text


def test_a_setting_that_matters_to_unknown_words_alone_is_noticed() -> None:
    vocabulary = {"[UNK]": 0, "other": 1, "cat": 2, "sat": 3}
    backend = tokenizers.Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer: Any = PreTrainedTokenizerFast(tokenizer_object=backend)  # type: ignore[no-untyped-call]
    pair = tokenizer, wrap(tokenizer)
    text = "cat zzz sat " * 300
    assert_equal(pair, lambda each: each(text))
    tokenizer.backend_tokenizer.model.unk_token = "other"
    assert 1 in tokenizer(text)["input_ids"]
    assert_equal(pair, lambda each: each(text))


def test_added_tokens_that_are_found_otherwise_once_saved_are_left_to_the_library(
    mini: Pair, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tokenizer = mini[0]
    tok = toktier.load(tokenizer)
    assert disagreement(tokenizer.backend_tokenizer, tok) is None
    tokenizer.add_tokens(["cat sat"])
    assert "found in another way" in str(disagreement(tokenizer.backend_tokenizer, tok))
    monkeypatch.setattr(reuse, "disagreement", lambda backend, tok: "it has another")
    wrapped = wrap(tokenizer)
    assert_equal((tokenizer, wrapped), lambda each: each(LONG))
    assert sessions(wrapped) == 0
    assert "the library encodes for a wrapped tokenizer: it has another" in caplog.text


def test_what_cannot_be_compared_with_its_saved_form_is_left_to_the_library(caplog: pytest.LogCaptureFixture) -> None:
    backend = tokenizers.Tokenizer(models.WordLevel({"cat": 0, "sat": 1}, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer: Any = PreTrainedTokenizerFast(tokenizer_object=backend)  # type: ignore[no-untyped-call]
    wrapped = wrap(tokenizer)
    assert "its saved form cannot be compared with it" in caplog.text
    assert_equal((tokenizer, wrapped), lambda each: each("cat sat " * 300))
    assert sessions(wrapped) == 0


def test_encodings_that_are_asked_for_late_are_those_of_then() -> None:
    expected, wrapped = plain(), wrap(plain())
    for change in (
        lambda each: each(LONG, truncation=True, max_length=9),
        lambda each: each.add_tokens(["cat sat"]),
        lambda each: setattr(each.backend_tokenizer, "post_processor", processors.BertProcessing(("c", 66), ("a", 64))),
        lambda each: setattr(each.backend_tokenizer, "normalizer", normalizers.Lowercase()),
    ):
        one, other = expected(LONG), wrapped(LONG)
        change(expected)
        change(wrapped)
        assert type(other) is not BatchEncoding  # nobody has asked yet
        assert facts(other) == facts(one)


# What goes to the library ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text", ["", "short", LONG + "\ud800", ["x", LONG + "\ud800"], None, 3, [], [None], [[LONG]], b"x", [3]]
)
def test_what_is_no_long_text_is_answered_or_refused_as_before(mini: Pair, text: Any) -> None:
    assert_equal(mini, lambda each: each(text))
    assert_equal(mini, lambda each: each.encode(text))
    assert_equal(mini, lambda each: each(text, is_split_into_words=True))


def test_a_string_of_another_class_is_the_librarys(mini: Pair) -> None:
    class Other(str):
        __slots__ = ()

    assert_equal(mini, lambda each: each(Other(LONG)))
    assert calls(mini[1]) == 0


@pytest.mark.parametrize(
    "arguments", [{"return_offsets_mapping": True}, {"split_special_tokens": True}, {"text_pair": LONG}]
)
def test_what_needs_the_library_is_not_stored(mini: Pair, arguments: dict[str, Any]) -> None:
    assert_equal(mini, lambda each: each(LONG, **arguments))
    assert calls(mini[1]) == 0


@pytest.mark.parametrize(
    "processor",
    [
        None,
        processors.BertProcessing(("c", 66), ("a", 64)),
        processors.RobertaProcessing(("c", 66), ("a", 64)),
        processors.ByteLevel(trim_offsets=True),
        processors.TemplateProcessing(single="a:1 $A:3 c:2", pair="$A $B", special_tokens=[("a", 64), ("c", 66)]),
        processors.TemplateProcessing(single="$A a $A", pair="$A $B", special_tokens=[("a", 64)]),
        processors.TemplateProcessing(single="a", pair="$A $B", special_tokens=[("a", 64)]),
    ],
    ids=str,
)
@pytest.mark.parametrize("add_special_tokens", [True, False])
def test_post_processors_add_what_they_add(mini: Pair, processor: Any, add_special_tokens: bool) -> None:
    mini[0].backend_tokenizer.post_processor = processor
    for text in (LONG, [LONG, "x"]):
        assert_equal(
            mini,
            lambda each: each(text, add_special_tokens=add_special_tokens, return_token_type_ids=True),  # noqa: B023
        )


def test_a_post_processor_that_takes_a_text_apart_is_not_followed() -> None:
    twice = processors.TemplateProcessing(single="$A $A", pair="$A $B", special_tokens=[])
    none = processors.TemplateProcessing(single="a", pair="$A $B", special_tokens=[("a", 64)])
    assert affixes(twice, add_special_tokens=True) is None
    assert affixes(none, add_special_tokens=True) is None


def test_dropout_is_left_to_the_library(mini: Pair) -> None:
    original, wrapped = mini
    original.backend_tokenizer.model.dropout = 0.5
    assert len({tuple(wrapped(LONG)["input_ids"]) for _ in range(3)}) == 3


def test_a_normalizer_in_python_is_left_to_the_library(caplog: pytest.LogCaptureFixture) -> None:
    class Lower:
        def normalize(self, normalized: tokenizers.NormalizedString) -> None:
            normalized.lowercase()

    tokenizer = plain()
    tokenizer.backend_tokenizer.normalizer = normalizers.Normalizer.custom(Lower())
    wrapped = wrap(tokenizer)
    assert "cannot be loaded" in caplog.text
    assert_equal((tokenizer, wrapped), lambda each: each(LONG))
    tokenizer.backend_tokenizer.normalizer = normalizers.Lowercase()
    assert_equal((tokenizer, wrapped), lambda each: each(LONG))
    assert sessions(wrapped) == 1


def test_a_closed_store_is_left_out_and_said_so_once(caplog: pytest.LogCaptureFixture) -> None:
    tokenizer = plain()
    store = toktier.SessionStore(toktier.load(tokenizer))
    wrapped = wrap(tokenizer, store)
    wrapped(LONG)
    assert len(store) == 1
    store.close()
    for _ in range(2):
        assert_equal((tokenizer, wrapped), lambda each: each(LONG))
    assert caplog.text.count("the store is closed") == 1


def test_a_text_that_is_too_long_for_the_model_is_warned_about_as_before(caplog: pytest.LogCaptureFixture) -> None:
    said = []
    tokenizer = plain(model_max_length=50)
    logging.getLogger("transformers").addHandler(caplog.handler)
    try:
        for each in (plain(model_max_length=50), wrap(tokenizer)):
            caplog.clear()
            each(LONG)
            each(LONG)
            said.append([record.getMessage() for record in caplog.records])
    finally:
        logging.getLogger("transformers").removeHandler(caplog.handler)
    assert said[0] == said[1] != []


# Copies, which servers make for their threads ------------------------------------------------------------------------


def test_a_deep_copy_that_is_only_ever_called_with_truncation_goes_on_from_the_store(mini: Pair) -> None:
    """As vLLM does it: with the length of its context, which no prompt has."""
    tokenizer, wrapped = mini
    wrapped(LONG)
    own, copied = copy.deepcopy(tokenizer), copy.deepcopy(wrapped)
    for text in (LONG + "More.", LONG + "More. And more."):
        assert_equal((own, copied), lambda it, text=text: it(text, truncation=True, max_length=100_000))  # type: ignore[misc]
    served = vars(wrapped)[REUSE]._served
    assert vars(copied)[REUSE]._served.store is served.store
    assert served.store.usage().continued == 2
    assert vars(copied)[REUSE]._changes == 0  # nothing was derived again


def test_a_deep_copy_of_one_that_has_changed_does_not_go_on_from_its_store(mini: Pair) -> None:
    tokenizer, wrapped = mini
    wrapped(LONG)
    lower(wrapped)
    own, copied = copy.deepcopy(tokenizer), copy.deepcopy(wrapped)
    assert vars(copied)[REUSE]._served is None
    assert_equal((own, copied), lambda it: it(LONG))


@pytest.mark.parametrize(("most", "is_served"), [(1 << 20, True), (500, False)])
def test_truncation_that_a_tokenizer_has_when_it_is_wrapped(most: int, is_served: bool) -> None:
    tokenizer = plain()
    tokenizer.backend_tokenizer.enable_truncation(most)
    tokenizer.backend_tokenizer.enable_padding(pad_id=3)
    wrapped = wrap(tokenizer)
    assert (vars(wrapped)[REUSE]._served is not None) == is_served
    pair = copy.deepcopy(tokenizer), wrapped
    assert_equal(pair, lambda it: it(LONG, truncation=True, max_length=most))
    assert_equal(pair, lambda it: it(LONG))
    assert sessions(wrapped) == 1  # the library has no truncation any more
