"""What is claimed of normalizers, against the normalizers: on the characters that do anything, mixed at random."""

from __future__ import annotations

import functools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toktier.families.normalization import CHARACTER_WISE, DECOMPOSITION, Rewriting, rewriting
from toktier.families.probing import DiskCache, Probe, blocks, every_character

PROBE = Probe(DiskCache(None))
CHAINS = [
    *(["NFC"], ["NFD"], ["NFKC"], ["NFKD"], ["Lowercase"], []),
    *(["Lowercase", "NFKC"], ["NFD", "Lowercase"], ["NFC", "Lowercase"], ["Lowercase", "NFC"], ["NFD", "NFC"]),
    *(["NFKD", "Lowercase", "NFC"], ["NFC", "NFD"]),
]
by_name = pytest.mark.parametrize("chain", CHAINS, ids=lambda chain: " ".join(chain) or "none")


def normalized(chain: list[str], text: str) -> str:
    return functools.reduce(lambda text, name: PROBE.normalize(name, text), chain, text)


@functools.cache
def claims(*chain: str) -> Rewriting:
    return rewriting(chain, PROBE)


def characters() -> st.SearchStrategy[str]:
    """Marks, what decomposes, what is composed and what it is composed of, jamo, Indic vowel signs, and plain ones."""
    runs = PROBE.combining().reshape(-1, 2).tolist()
    decomposed = PROBE.changes("NFD")
    parts = {ord(part) for text in decomposed.values() for part in text}
    pools: list[list[int]] = [
        [c for start, stop in runs for c in range(start, stop)],
        *(list(PROBE.changes(name)) for name in ("NFC", "NFD", "NFKC", "NFKD", "Lowercase")),
        sorted(decomposed.keys() - PROBE.changes("NFC").keys()),
        sorted(parts),
        [*range(0x1100, 0x1113), *range(0x1161, 0x1176), *range(0x11A7, 0x11C3), *range(0xAC00, 0xAC40)],
        list(range(0x0900, 0x0E00)),
        [*range(0x3131, 0x3164), *range(0xFFA1, 0xFFDD), 0x1100, 0x1161, 0x11A8],  # jamo by compatibility
        [*range(0x0F71, 0x0F85), 0x0345, 0x0334],
        [*map(ord, "aAkKsS<=/ \niIİıΣσςßẞ中あ"), 0x1B05, 0x1B35, 0x3099, 0x200D],
    ]
    return st.one_of(*(st.sampled_from(pool) for pool in pools)).map(chr)


some = st.lists(characters(), max_size=3).map("".join)


@by_name
@settings(max_examples=200)
@given(before=some, a=characters(), b=characters(), after=some)
def test_normalizing_the_sides_of_a_cut_gives_the_normalized_whole(
    chain: list[str], before: str, a: str, b: str, after: str
) -> None:
    claimed = claims(*chain)
    ends = claimed.ends.get(ord(a), {ord(a)})
    starts = claimed.starts.get(ord(b), {ord(b)})
    left, right = normalized(chain, before + a), normalized(chain, b + after)
    if starts:
        assert normalized(chain, before + a + b + after) == left + right
        assert ord(right[0]) in starts
    if ends:
        assert ord(left[-1]) in ends


@by_name
def test_what_a_character_becomes_by_itself_is_among_what_is_claimed(chain: list[str]) -> None:
    claimed = claims(*chain)
    for c in claimed.ends.keys() | claimed.starts.keys():
        becomes = normalized(chain, chr(c))
        assert ord(becomes[-1]) in claimed.ends.get(c, {c}) or not claimed.ends[c]
        assert ord(becomes[0]) in claimed.starts.get(c, {c}) or not claimed.starts[c]


@by_name
@given(b=characters(), before=characters())
def test_a_cut_is_refused_only_before_what_something_can_be_joined_to(chain: list[str], b: str, before: str) -> None:
    """Claims that refuse everything would be sound too."""
    starts = claims(*chain).starts.get(ord(b), {ord(b)})
    plain = normalized(chain, b)[0]
    if not starts:
        moved = PROBE.normalize("NFD", "a\u0345" + plain) != "a\u0345" + plain
        moved |= PROBE.normalize("NFD", plain + "\u0334") != plain + "\u0334"
        assert moved or ord(plain) in joined()


@functools.cache
def joined() -> frozenset[int]:
    """What is not the first part of some decomposition: a composition can take it in."""
    return frozenset(ord(part) for text in PROBE.changes("NFD").values() for part in text[1:])


def starts(chain: list[str], character: str) -> set[str]:
    return {*map(chr, claims(*chain).starts.get(ord(character), {ord(character)}))}


def ends(chain: list[str], character: str) -> set[str]:
    return {*map(chr, claims(*chain).ends.get(ord(character), {ord(character)}))}


def test_the_examples_of_the_theory() -> None:
    assert {"<", "≮"} <= starts(["NFC"], "<")
    assert starts(["NFD"], "<") == {"<"}
    assert starts(["NFC"], "\u0301") == set(), "it joins what is before"
    assert starts(["NFC"], "\u1161") == set(), "a vowel joins a consonant"
    assert starts(["NFKC"], "\uffc2") == set(), "half as wide, it does so too"
    assert starts(["NFC"], "\u0f73") == set(), "what it becomes moves before a mark of a higher class"
    assert "가" in starts(["NFC"], "\u1100")
    assert {"가", "각"} <= starts(["NFC"], "가")
    assert ends(["NFC"], "\u0958") == {"\u093c"}, "always decomposed"
    assert ends(["NFKC"], "ﬁ") == {"i"}
    assert "f" in starts(["NFKC"], "ﬁ")
    assert ends(["NFC"], "a") == {"a"}
    assert starts(["Lowercase"], "A") == ends(["Lowercase"], "A") == {"a"}
    assert ends(["Lowercase"], "İ") == {"\u0307"}
    assert starts(["Lowercase"], "İ") == {"i"}
    assert {"a", "å"} <= starts(["Lowercase", "NFC"], "A")
    assert starts(["NFC", "Lowercase"], "Å") >= {"å"}


@pytest.mark.parametrize("name", [*DECOMPOSITION, *CHARACTER_WISE])
def test_a_normalizer_leaves_alone_what_it_has_made(name: str) -> None:
    """So one that follows itself in a definition may be left out."""
    for block in blocks(every_character()):
        once = PROBE.normalize(name, block)
        assert PROBE.normalize(name, once) == once


@pytest.mark.parametrize("name", [*DECOMPOSITION, *CHARACTER_WISE])
@given(characters(), characters(), some)
def test_a_normalizer_leaves_alone_what_it_has_made_of_a_text(name: str, first: str, second: str, rest: str) -> None:
    once = PROBE.normalize(name, first + second + rest)
    assert PROBE.normalize(name, once) == once


def test_characters_that_no_normalizer_touches_are_not_mentioned() -> None:
    for chain in CHAINS:
        claimed = claims(*chain)
        assert not {*map(ord, "中0_ \n😀\u200b")} & (claimed.ends.keys() | claimed.starts.keys())
    assert claims() == Rewriting()


def test_a_character_that_is_deleted_leaves_nothing_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Probe, "changes", lambda self, name: {ord("x"): "", ord("y"): "uv"})
    claimed = rewriting(["Lowercase"], PROBE)
    assert not claimed.starts[ord("x")]
    assert not claimed.ends[ord("x")]
    assert claimed.starts[ord("y")] == {ord("u")}
    assert claimed.ends[ord("y")] == {ord("v")}


def test_what_is_unknown_to_one_normalizer_stays_unknown_behind_the_next() -> None:
    unknown = Rewriting({1: frozenset()}, {1: frozenset()})
    renaming = Rewriting({1: frozenset((2,)), 3: frozenset((1,))}, {1: frozenset((2, 4))})
    assert unknown.then(renaming).ends[1] == unknown.then(renaming).starts[1] == frozenset()
    assert renaming.then(unknown).starts[1] == {2, 4}
    assert renaming.then(unknown).ends[3] == frozenset()
    assert Rewriting({3: frozenset((1, 2))}).then(unknown).ends[3] == frozenset()
    assert renaming.then(renaming).ends == {1: {2}, 3: {2}}
