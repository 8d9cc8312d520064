"""The enumeration beside a naive one; and, with pairs planted into the relation and taken from it, that it notices."""

from __future__ import annotations

import itertools
import random
from collections import defaultdict

import numpy as np
import pytest
import tokenizers
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

import toktier
from tests import material, zoo
from toktier.campaign import exhaustive
from toktier.campaign.exhaustive import Encoded, Enumeration, Failure, enumerate_strings, longest, representatives
from toktier.engines.reference import ReferenceEngine
from toktier.executor import Executor
from toktier.families.family import Family
from toktier.families.probing import DiskCache

SOME = 10
"""Representatives with which a naive enumeration takes no longer than the others."""

CHOSEN = "ame 0A\n\t_'"
"""Representatives of the bundled tokenizer between which much can go wrong."""


def few(family: Family, seed: str) -> str:
    """Some representatives, at random."""
    everything = representatives(family)
    return "".join(random.Random(seed).sample(everything, min(SOME, len(everything))))


def naive(family: Family, reference: material.Reference, characters: str, length: int) -> Enumeration:
    """The same enumeration, string by string, with lists of ids."""
    sizes = range(1, length + 1)
    texts = ["".join(text) for size in sizes for text in itertools.product(characters, repeat=size)]
    ids = {text: tuple(reference(text)) for text in texts}
    tails = {text: tuple(continuing(family, reference, text)) for text in texts}
    outcomes = defaultdict(list)
    failures = []
    for text in texts:
        for cut in range(1, len(text)):
            got = ids[text[:cut]] + tails[text[cut:]]
            outcomes[text[cut - 1], text[cut]].append(got == ids[text])
            if family.is_cut(text, cut, continuation=True) and got != ids[text]:
                failures.append(Failure(text, cut, ids[text], got))
    return Enumeration(
        length=length,
        representatives=characters,
        strings=len(texts),
        cuts=sum(map(len, outcomes.values())),
        certified=sum(len(some) for pair, some in outcomes.items() if family.is_pair(*pair)),
        failures=tuple(failures[:100]),
        failed=len(failures),
        left=tuple(pair for pair, some in outcomes.items() if all(some) and not family.is_pair(*pair)),
    )


def continuing(family: Family, reference: material.Reference, text: str) -> list[int]:
    """The ids of a text behind a certified cut; of one that stands behind none, those by itself."""
    lead = family.lead(text) or ""
    return reference(lead + text)[len(reference(lead)) :]


def with_pair(tok: toktier.Tokenizer, name: str, left: str, right: str, certified: bool) -> toktier.Tokenizer:
    """The same tokenizer with another opinion of one pair of atoms."""
    family = tok.family
    pairs = family._pairs.copy()
    pairs[family._atom[ord(left)] * family.atoms + family._atom[ord(right)]] = certified
    assert np.count_nonzero(pairs != family._pairs) == 1
    reference = ReferenceEngine(tokenizers.Tokenizer.from_buffer(material.definition(name)))
    planted = evolve(family, pairs=pairs, is_pair=pairs.tobytes())
    return toktier.Tokenizer(planted, reference, DiskCache(None), Executor())


@pytest.mark.parametrize("name", zoo.SUPPORTED)
def test_it_finds_what_a_naive_enumeration_finds(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tok = material.registry().load(zoo.build(name))
    characters = few(tok.family, name)
    monkeypatch.setattr(exhaustive, "representatives", lambda family: characters)
    reference = material.reference_of(tokenizers.Tokenizer.from_str(zoo.build(name).to_str()))
    found = enumerate_strings(tok, 3)
    assert found == naive(tok.family, reference, characters, 3)
    assert found.failed == 0


def test_wrong_relations_are_found_as_wrong_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every pair is certified: the naive enumeration finds the same failures, in the same order."""
    tok = material.load("toktier-mini")
    everything = np.ones_like(tok.family._pairs)
    family = evolve(tok.family, pairs=everything, is_pair=everything.tobytes())
    wrong = toktier.Tokenizer(family, ReferenceEngine(zoo.build("gpt4")), DiskCache(None), Executor())
    characters = few(family, "wrong")
    monkeypatch.setattr(exhaustive, "representatives", lambda family: characters)
    expected = naive(family, material.reference_of(zoo.build("gpt4")), characters, 3)
    assert expected.failed > len(expected.failures) == 100
    assert enumerate_strings(wrong, 3) == expected
    monkeypatch.setattr(exhaustive, "BATCH", 37)
    assert enumerate_strings(wrong, 3) == expected


def test_no_certified_cut_of_the_bundled_tokenizer_fails() -> None:
    tok = material.load("toktier-mini")
    found = enumerate_strings(tok, 3)
    number = len(found.representatives)
    assert (found.strings, found.cuts) == (number + number**2 + number**3, number**2 + 2 * number**3)
    assert 0 < found.certified < found.cuts
    assert (found.failed, found.failures) == (0, ())


@pytest.mark.parametrize(("left", "right", "text", "cut"), [("m", "e", "me", 1), (" ", "0", "  0", 2)])
def test_a_planted_false_pair_is_found_with_the_smallest_string(
    left: str, right: str, text: str, cut: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``me`` is one token; of two spaces before a digit, the lookahead of ``\\s+(?!\\S)`` leaves the second alone."""
    tok, reference = material.load("toktier-mini"), material.reference("toktier-mini")
    monkeypatch.setattr(exhaustive, "representatives", lambda family: CHOSEN)
    found = enumerate_strings(with_pair(tok, "toktier-mini", left, right, certified=True), 3)
    smallest = Failure(text, cut, tuple(reference(text)), (*reference(text[:cut]), *reference(text[cut:])))
    assert smallest.expected != smallest.got
    assert found.failures[0] == smallest
    assert all(failure.text[failure.cut - 1 : failure.cut + 1] == left + right for failure in found.failures)
    assert [len(failure.text) for failure in found.failures] == sorted(len(failure.text) for failure in found.failures)
    assert found.failed == len(found.failures)


def test_a_pair_that_is_missing_is_left_on_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    tok = material.load("toktier-mini")
    monkeypatch.setattr(exhaustive, "representatives", lambda family: CHOSEN)
    whole = enumerate_strings(tok, 3)
    missing = enumerate_strings(with_pair(tok, "toktier-mini", "a", " ", certified=False), 3)
    assert ("a", " ") not in whole.left
    assert set(missing.left) == {*whole.left, ("a", " ")}
    assert (missing.strings, missing.cuts, missing.failed) == (whole.strings, whole.cuts, 0)
    assert missing.certified < whole.certified


@pytest.mark.parametrize("name", zoo.SUPPORTED)
def test_every_atom_has_one_representative_unless_it_has_surrogates_only(name: str) -> None:
    family = material.registry().load(zoo.build(name)).family
    found = representatives(family)
    empty = [ranges for ranges in family.alphabet() if all(0xD800 <= point < 0xE000 for r in ranges for point in r)]
    assert len({family._atom[ord(character)] for character in found}) == len(found) == family.atoms - len(empty)
    assert not any(0xD800 <= ord(character) < 0xE000 for character in found)


def test_few_atoms_are_enumerated_to_five_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    small, large = material.registry().load(zoo.build("gaps")), material.load("toktier-mini")
    assert (longest(small), longest(large)) == (5, 4)
    monkeypatch.setattr(exhaustive, "representatives", lambda family: "a \n")
    found = enumerate_strings(large)
    assert (found.length, found.strings) == (5, 3 + 9 + 27 + 81 + 243)


def test_the_share_that_is_done_grows_to_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exhaustive, "BATCH", 100)
    shares: list[float] = []
    enumerate_strings(material.load("toktier-mini"), 2, proceed=shares.append)
    assert len(shares) > 10
    assert shares == sorted(set(shares))
    assert shares[-1] == 1


def test_proceed_can_end_it() -> None:
    def stop(share: float) -> None:
        raise TimeoutError

    with pytest.raises(TimeoutError):
        enumerate_strings(material.load("toktier-mini"), 4, proceed=stop)


def test_no_engine_but_the_reference_takes_part(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def engine(tok: toktier.Tokenizer, name: str = "auto") -> ReferenceEngine:
        asked.append(name)
        return tok.reference

    monkeypatch.setattr(toktier.Tokenizer, "engine", engine)
    enumerate_strings(material.load("toktier-mini"), 2)
    assert set(asked) == {"reference"}


def test_what_has_no_cuts_is_refused() -> None:
    tok = material.registry().load(zoo.build("anchor"))
    with pytest.raises(ValueError, match="no certified cuts"):
        enumerate_strings(tok, 2)


@pytest.mark.parametrize("length", [-1, 0, 1])
def test_strings_that_cannot_be_cut_are_refused(length: int) -> None:
    with pytest.raises(ValueError, match="give 2 or more"):
        enumerate_strings(material.load("toktier-mini"), length)


IDS = st.lists(st.integers(0, 3), max_size=4)


@given(st.lists(IDS, min_size=1, max_size=6), st.data())
def test_ids_are_compared_one_by_one(parts: list[list[int]], data: st.DataObject) -> None:
    """Strings without ids and parts without ids among them, as a splitter that drops its matches makes them."""
    places = st.integers(0, len(parts) - 1)
    cuts = data.draw(st.lists(st.tuples(places, places, st.none() | IDS), max_size=8))
    whole = [parts[head] + parts[tail] if other is None else other for head, tail, other in cuts]
    heads, tails = (np.array([cut[half] for cut in cuts], np.int64) for half in (0, 1))
    expected = [ids != parts[head] + parts[tail] for ids, (head, tail, _) in zip(whole, cuts, strict=True)]
    assert exhaustive.changed(encoded(whole), (encoded(parts), encoded(parts)), heads, tails).tolist() == expected


def encoded(strings: list[list[int]]) -> Encoded:
    return Encoded.of([np.array(ids, np.uint32) for ids in strings])
