"""What is claimed of normalizers, against the normalizers: on the characters that do anything, mixed at random."""

from __future__ import annotations

import base64
import functools
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toktier.families.normalization import DECOMPOSITION, Rewriting, rewriting
from toktier.families.probing import DiskCache, Probe, blocks, code_points_of, every_character
from toktier.families.reading import CHARACTER_MAPS
from toktier.families.stages import CharacterMap, Charsmap, Form, Trim
from toktier.families.trie import compiled

PROBE = Probe(DiskCache(None))
Stage = CharacterMap | Form | Trim | Charsmap


def bert(option: str) -> str:
    nothing = dict.fromkeys(("clean_text", "handle_chinese_chars", "strip_accents", "lowercase"), False)
    return json.dumps({"type": "BertNormalizer"} | nothing | {option: True})


def strip(left: bool, right: bool) -> str:
    return json.dumps({"type": "Strip", "strip_left": left, "strip_right": right})


def charsmap(key: str, image: str) -> str:
    return json.dumps({"type": "Precompiled", "precompiled_charsmap": base64.b64encode(compiled(key, image)).decode()})


MAPS = {
    **{name: f'{{"type":"{name}"}}' for name in ("Lowercase", "StripAccents", "Nmt")},
    **{f"BERT {option}": bert(option) for option in ("clean_text", "handle_chinese_chars", "lowercase")},
}
CHARSMAPS = {
    f"charsmap {key!r}": charsmap(key, image)
    for key, image in (
        ("a\u0301", "á"),
        ("a", "xy"),
        ("\u3000", " "),
        ("\n", " "),
        ("\r", "!"),
        ("ﬁ", ""),
        ("k\n", "k"),
    )
}
STAGES: dict[str, tuple[Stage, str]] = {
    **{name: (Form(name), f'{{"type":"{name}"}}') for name in DECOMPOSITION},
    **{name: (CharacterMap(component), component) for name, component in MAPS.items()},
    **{
        f"strip {left} {right}": (Trim(left, right), strip(left, right))
        for left, right in ((True, True), (True, False), (False, True))
    },
    **{name: (Charsmap(component), component) for name, component in CHARSMAPS.items()},
}
by_name = pytest.mark.parametrize("name", STAGES)


def normalized(name: str, text: str) -> str:
    return PROBE.normalize(STAGES[name][1], text)


@functools.cache
def claims(name: str) -> Rewriting:
    return rewriting(STAGES[name][0], PROBE)


@functools.cache
def lost(name: str) -> frozenset[int]:
    return frozenset(code_points_of(claims(name).lost))


def starts(name: str, character: str) -> set[str]:
    claimed = claims(name)
    unknown = ord(character) >= claimed.unknown_from or ord(character) in lost(name)
    return set() if unknown else {*map(chr, claimed.starts.get(ord(character), {ord(character)}))}


def ends(name: str, character: str) -> set[str]:
    if ord(character) in lost(name):
        return set()
    return {*map(chr, claims(name).ends.get(ord(character), {ord(character)}))}


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


one = st.deferred(characters)  # not before a test wants some: the library is asked about all of them
some = st.lists(one, max_size=3).map("".join)


@by_name
@settings(max_examples=200)
@given(before=some, a=one, b=one, after=some)
def test_normalizing_the_sides_of_a_cut_gives_the_normalized_whole(
    name: str, before: str, a: str, b: str, after: str
) -> None:
    left, right = normalized(name, before + a), normalized(name, b + after)
    if starts(name, b) and ends(name, a):
        assert normalized(name, before + a + b + after) == left + right
        assert left[-1] in ends(name, a)
        assert right == "" or right[0] in starts(name, b)


def test_where_nothing_is_claimed_there_is_a_reason() -> None:
    """The controls: at each of these the two sides do not give the whole, or nothing is left of one."""
    for name, before, a, b, after in [
        ("NFC", "", "a", "\u0301", ""),
        ("strip True True", "x", " ", "b", ""),
        ("strip True True", "x", "b", " ", "y"),
        ("charsmap 'a'", "", "a", "\u0301", ""),
        ("charsmap 'a\u0301'", "", "a", "\u0301", ""),
        ("charsmap 'a\u0301'", "", "\u0600", "a", "\u0301"),
        ("charsmap '\\r'", "", "\r", "\n", ""),
    ]:
        assert not starts(name, b) or not ends(name, a), name
        left, right = normalized(name, before + a), normalized(name, b + after)
        assert normalized(name, before + a + b + after) != left + right, name
    assert ends("strip True False", " ") == set()
    assert normalized("strip True False", " ") == ""


@by_name
def test_most_characters_may_stand_at_a_cut(name: str) -> None:
    plain = "abcdefghijklmnopqrstuvwxyz0123456789 .,-(){}"
    known = sum(bool(starts(name, b)) and bool(ends(name, b)) for b in plain)
    assert known >= len(plain) - 1


def test_the_examples_of_the_theory() -> None:
    assert {"<", "≮"} <= starts("NFC", "<")
    assert starts("NFD", "<") == {"<"}
    assert starts("NFC", "\u0301") == set(), "it joins what is before"
    assert starts("NFC", "\u1161") == set(), "a vowel joins a consonant"
    assert starts("NFKC", "\uffc2") == set(), "half as wide, it does so too"
    assert starts("NFC", "\u0f73") == set(), "what it becomes moves before a mark of a higher class"
    assert "가" in starts("NFC", "\u1100")
    assert {"가", "각"} <= starts("NFC", "가")
    assert ends("NFC", "\u0958") == {"\u093c"}, "always decomposed"
    assert ends("NFKC", "ﬁ") == {"i"}
    assert "f" in starts("NFKC", "ﬁ")
    assert ends("NFC", "a") == {"a"}
    assert starts("Lowercase", "A") == ends("Lowercase", "A") == {"a"}
    assert ends("Lowercase", "İ") == {"\u0307"}
    assert starts("Lowercase", "İ") == {"i"}
    assert ends("charsmap '\\r'", "\n") == {"\n", "!"}, "behind a carriage return it is dropped"
    assert starts("BERT handle_chinese_chars", "中") == {" "}
    assert starts("charsmap 'a\u0301'", "a") == {"a", "á"}


@pytest.mark.parametrize("name", [*DECOMPOSITION, *sorted(CHARACTER_MAPS)])
def test_a_normalizer_leaves_alone_what_it_has_made(name: str) -> None:
    """So one that follows itself in a definition may be left out."""
    for block in blocks(every_character()):
        once = PROBE.normalize(name, block)
        assert PROBE.normalize(name, once) == once


@pytest.mark.parametrize("name", [*DECOMPOSITION, "Lowercase"])
@given(one, one, some)
def test_a_normalizer_leaves_alone_what_it_has_made_of_a_text(name: str, first: str, second: str, rest: str) -> None:
    once = PROBE.normalize(name, first + second + rest)
    assert PROBE.normalize(name, once) == once


def test_characters_that_no_normalizer_touches_are_not_mentioned() -> None:
    for name in (*DECOMPOSITION, "Lowercase", "StripAccents"):
        assert not {*map(ord, "中0_ \n😀\u200b")} & (claims(name).ends.keys() | claims(name).starts.keys())


def test_a_character_that_is_deleted_leaves_nothing_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Probe, "_changes", lambda self, name: {"deleted": [120, 121], "changed": {"121": "uv"}})
    claimed = rewriting(CharacterMap("{}"), PROBE)
    assert claimed.lost.tolist() == [ord("x"), ord("x") + 1]
    assert claimed.starts[ord("y")] == {ord("u")}
    assert claimed.ends[ord("y")] == {ord("v")}
