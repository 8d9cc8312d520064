"""Untrusted text against an oracle of its own: special tokens, whole and in fragments, in trusted and untrusted parts.

``python -m tests.forging`` does at length what ``tests/test_untrusted.py`` does in seconds: all literals of all
tokenizers that are there, with each of their parts untrusted, and random sessions.
"""

from __future__ import annotations

import functools
import itertools
import json
import random
import time
from collections.abc import Callable, Iterator, Sequence

import click
import tokenizers
from attrs import field, frozen
from tokenizers import normalizers, pre_tokenizers

import toktier
from tests import material
from tests.builders import GPT4, byte_level, sentencepiece, split, token, word_pieces
from toktier import protection
from toktier.untrusted import Span, Spans, checked_spans

FILLERS = ("a", " ", "\n", "user\n", "1", "é", "世", "<", "|", ">", " the", "im", "", "[", "]", "</")
"""What stands around literals and their fragments."""

BRACKETS = [
    token("<a>", special=True),
    token("<a>b", special=True),
    token(">b<", special=True),
    token("b<a", special=True),
]
"""Of which some begin, end or go on in others."""

SMALL: dict[str, Callable[[], tokenizers.Tokenizer]] = {
    "lstrip": lambda: byte_level(split(GPT4), added=[token("<a>", special=True, lstrip=True), token("[b]")]),
    "rstrip": lambda: byte_level(split(GPT4), added=[token("<a>", special=True, rstrip=True), token("[b]")]),
    "both": lambda: byte_level(
        split(GPT4), added=[token(content, special=True, lstrip=True, rstrip=True) for content in ("<a>", "<b>")]
    ),
    "overlapping": lambda: byte_level(split(GPT4), added=BRACKETS),
    "overlapping others": lambda: byte_level(
        split(GPT4), added=[token("<a>", special=True), token("a>x"), token(">x"), token("b"), token("xx")]
    ),
    "normalized": lambda: byte_level(
        split(GPT4), added=[token("<a>", special=True, normalized=True), token("a><x"), token("0"), token("1x")]
    ),
    "words": lambda: word_pieces(pre_tokenizers.BertPreTokenizer(), normalizers.BertNormalizer()),
    "a prefix everywhere": lambda: sentencepiece(
        pre_tokenizers.Metaspace(prepend_scheme="always"), added=[token("<a>", special=True), token("[b]")]
    ),
    "a prefix at the beginning": lambda: sentencepiece(
        pre_tokenizers.Metaspace(prepend_scheme="first"), added=[token("<a>", special=True), token("[b]")]
    ),
    "no cuts": lambda: byte_level(split(r"^a|\s+|\S+"), added=[token("<a>", special=True), token("[b]")]),
}
"""Definitions with special tokens that look around, overlap or come behind a prefix."""


@frozen
class Oracle:
    """What the ids of a text with untrusted characters must be, told by nothing but the library.

    Attributes:
        ordinary: The library as it is.
        as_text: The library with special tokens as text.
        behind: The same, for what is not the beginning of a text.
        literals: The added tokens with their ids.
    """

    ordinary: tokenizers.Tokenizer
    as_text: tokenizers.Tokenizer
    behind: tokenizers.Tokenizer
    literals: dict[int, tokenizers.AddedToken] = field(repr=False)

    @classmethod
    def of(cls, definition: str) -> Oracle:
        """From a ``tokenizer.json``."""
        compact = json.dumps(json.loads(definition))
        without = compact.replace('"prepend_scheme": "first"', '"prepend_scheme": "never"')
        libraries = [tokenizers.Tokenizer.from_str(text) for text in (compact, compact, without)]
        for library, is_text in zip(libraries, (False, True, True), strict=True):
            library.no_truncation()
            library.no_padding()
            library.encode_special_tokens = is_text
        ordinary, as_text, behind = libraries
        return cls(ordinary, as_text, behind, dict(ordinary.get_added_tokens_decoder()))

    def encode(self, text: str, untrusted: Spans) -> list[int]:
        """The counted special tokens, and with special tokens as text what is between them."""
        ids: list[int] = []
        at, strips = 0, False
        for start, stop, id in [*self.counted(text, untrusted), (len(text), len(text), None)]:
            stretch = text[at:start]
            if strips:
                stretch = stretch.lstrip()
            if id is not None and self.literals[id].lstrip:
                stretch = stretch.rstrip()
            if stretch:
                library = self.behind if at else self.as_text
                ids += library.encode(stretch, add_special_tokens=False).ids
            if id is not None:
                ids.append(id)
                strips = self.literals[id].rstrip
            at = stop
        return ids

    def counted(self, text: str, untrusted: Spans) -> list[tuple[int, int, int]]:
        """The special tokens that count: the leftmost, and of several there the longest."""
        is_untrusted = [any(a <= i < b for a, b in untrusted) for i in range(len(text))]
        barred = [False] * len(text)
        there = {id: literal for id, literal in self.literals.items() if literal.content in text}
        special = [literal.content for literal in there.values() if literal.special]
        for i, content in itertools.product(range(len(text)), special):
            if text.startswith(content, i) and any(is_untrusted[i : i + len(content)]):
                for k in range(i, i + len(content)):
                    barred[k] |= is_untrusted[k]
        found: list[tuple[int, int, int]] = []
        taken = [False] * len(text)
        for normalized in (False, True):  # the library looks twice
            look = [(id, literal) for id, literal in there.items() if literal.normalized is normalized]
            i = 0
            while i < len(text):
                here = [
                    (len(literal.content), id)
                    for id, literal in look
                    if text.startswith(literal.content, i)
                    and not any(barred[i : i + len(literal.content)])
                    and not any(taken[i : i + len(literal.content)])
                ]
                if not here:
                    i += 1
                    continue
                size, id = max(here)
                taken[i : i + size] = [True] * size
                if self.literals[id].special:
                    found.append((i, i + size, id))
                i += size
        return sorted(found)


@functools.cache
def small(name: str) -> str:
    """A small definition. Training it twice need not give the same."""
    return SMALL[name]().to_str()


@functools.cache
def oracle(name: str) -> Oracle:
    """The oracle of a tokenizer of :mod:`tests.material`, or of a small one."""
    return Oracle.of(small(name) if name in SMALL else material.definition(name).decode())


@functools.cache
def tokenizer(name: str) -> toktier.Tokenizer:
    """The same as toktier loads it."""
    library = tokenizers.Tokenizer.from_str(small(name)) if name in SMALL else None
    return material.load(name) if library is None else material.registry().load(library)


def spans_of(parts: Sequence[tuple[str, bool]]) -> Spans:
    """Which characters of some parts together are untrusted, where each part is or is not."""
    spans, at = list[Span](), 0
    for text, is_untrusted in parts:
        if is_untrusted:
            spans.append((at, at + len(text)))
        at += len(text)
    return checked_spans(spans, at)


def with_each_part_untrusted(literal: str) -> Iterator[Spans]:
    """Every run of characters of a literal, and everything but that."""
    for start, stop in itertools.combinations(range(len(literal) + 1), 2):
        yield ((start, stop),)
        yield checked_spans([(0, start), (stop, len(literal))], len(literal))


def fragments(name: str, source: random.Random) -> str:
    """A literal, a part of one, or something else."""
    if source.random() < 0.3:
        return source.choice(FILLERS)
    content = source.choice(list(oracle(name).literals.values())).content
    if source.random() < 0.4:
        return content
    start = source.randrange(len(content))
    return content[start : start + source.randrange(1, len(content) + 1)]


def parts(name: str, source: random.Random, most: int = 8) -> list[tuple[str, bool]]:
    """Fragments, each trusted or not."""
    return [(fragments(name, source), source.random() < 0.5) for _ in range(source.randrange(1, most))]


def differing(name: str, text: str, spans: Spans) -> str | None:
    """What is wrong with the ids of a text, if anything is."""
    expected, got = oracle(name).encode(text, spans), tokenizer(name).encode(text, untrusted=spans).tolist()
    return None if got == expected else f"{name}: {text!r}, untrusted {spans}: {got}, not {expected}"


def session_differing(name: str, source: random.Random, steps: int) -> str | None:
    """What goes wrong in a random session, if anything does."""
    tok, mask, text = tokenizer(name), list[bool](), ""
    session, ids = tok.session(), list[int]()
    for _ in range(steps):
        kind = source.choice(("append", "append", "edit", "update", "save", "fork"))
        new, is_untrusted = fragments(name, source), source.random() < 0.5
        start = source.randrange(len(text) + 1)
        stop = min(len(text), start + source.randrange(12)) if kind != "append" else start
        if kind == "append":
            start = stop = len(text)
            patch = session.append(new, special="text" if is_untrusted else "token")
        elif kind == "edit":
            patch = session.edit(start, stop, new, special="text" if is_untrusted else "token")
        elif kind == "update":
            other = source.randrange(len(text) + 1)  # what is trusted changes somewhere else too
            mask[other : other + 5] = [source.random() < 0.5] * len(mask[other : other + 5])
        elif kind == "save":
            session = toktier.Session.from_bytes(tok, session.to_bytes())
            continue
        else:
            session = session.fork()
            continue
        text = text[:start] + new + text[stop:]
        mask[start:stop] = [is_untrusted] * len(new)
        spans = checked_spans([(i, i + 1) for i, it in enumerate(mask) if it], len(mask))
        if kind == "update":
            patch = session.update(text, untrusted=spans)
        patch.apply(ids)
        expected = oracle(name).encode(text, spans)
        if not (ids == session.ids.tolist() == session.tolist() == expected):
            return f"{name}: {kind} gives {text!r}, untrusted {spans}: {ids}, not {expected}"
        if (session.text, session.untrusted) != (text, spans):
            return f"{name}: {kind} gives {session.text!r} with {session.untrusted}, not {text!r} with {spans}"
    return None


@click.command()
@click.option("--seconds", default=60.0, show_default=True, help="For random texts and sessions, each tokenizer.")
@click.option("--seed", default=0, show_default=True)
@click.option("--only", multiple=True, help="The name of a tokenizer.")
def main(seconds: float, seed: int, only: tuple[str, ...]) -> None:
    """Forges special tokens on all tokenizers that are there."""
    wrong = 0
    for name in only or (*material.available(), *SMALL):
        source, counts, found = random.Random(seed), [0, 0, 0], list[str | None]()
        for literal in oracle(name).literals.values():
            for spans in with_each_part_untrusted(literal.content):
                found.append(differing(name, literal.content, spans))
                counts[0] += 1
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            protection.APART = source.choice((0, 256))  # in short texts, nothing is apart otherwise
            some = parts(name, source)
            found.append(differing(name, "".join(text for text, _ in some), spans_of(some)))
            found.append(session_differing(name, source, 12))
            counts[1] += 1
            counts[2] += 1
        bad = list(filter(None, found))
        wrong += len(bad)
        literals, texts, sessions = counts
        click.echo(f"{name}: {literals:,} parts of literals, {texts:,} texts, {sessions:,} sessions: {len(bad)} differ")
        for line in bad[:3]:
            click.echo(f"  {line}")
    raise SystemExit(wrong > 0)


if __name__ == "__main__":
    main()
