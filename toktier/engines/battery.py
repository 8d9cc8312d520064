"""The texts on which an engine is compared with the reference."""

from __future__ import annotations

import random
import unicodedata
from collections.abc import Iterator
from typing import TypeVar

import numpy as np

from toktier.engines.reference import ReferenceEngine
from toktier.engines.tiktoken import NOTHING
from toktier.families.bytelevel import byte_alphabet
from toktier.families.definition import Definition
from toktier.families.family import Family
from toktier.families.probing import CODE_POINTS, SURROGATES, Probe, Runs, every_character

BLOCK = 128
"""Characters, tokens or texts that are compared at a time: many to a text, since each call has its price."""

MEANINGLESS, TEMPLATE = r"[\p{Cn}\p{Co}]", "  {0}'s{0}123\n"
"""What every code point is put into: were one a letter, a digit or whitespace to an engine, it would show in the ids.
That is all for nine in ten, which have no meaning in the reference's version of Unicode, or a private one."""

UNIFORM, ALONE = r"[\p{Han}\p{Hangul}]", "{0}\n"
"""The others also stand alone, a hundred thousand of them with that."""

SCRIPTS = "{0}\n{0}a1{0}AB{0}{0}1{0} a{0}b'{0}s.{0}.\t{0}\n\n"
"""What the rest is put into besides."""

AROUND_TOKENS = "a{0} {0}b\n{0}{0}1{0}.{0}\t{1} {0}{1}\n"
"""What every added token is put into, with its beginning as the second argument."""

RANDOM_TEXTS = 4096
"""How many texts over the family's atoms, and over all of Unicode."""

LONG = 300_000
"""Characters of the longest text: engines may treat such ones in another way."""

PUNCTUATION = "aA1 \n\t" + "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"
"""ASCII punctuation, with one character of every other kind: words come from the vocabulary."""

Items = TypeVar("Items", str, list[str])


def code_point_blocks(probe: Probe) -> Iterator[tuple[str, str]]:
    """All code points, some at a time, with what they are put into."""
    everything = every_character()
    assigned = _without(everything, probe.members(MEANINGLESS))
    scripts = _without(assigned, probe.members(UNIFORM))
    for template, characters in ((TEMPLATE, everything), (ALONE, assigned), (SCRIPTS, scripts)):
        yield from ((template, some) for some in chunks(characters, BLOCK))


def _without(characters: str, runs: Runs) -> str:
    left_out = np.zeros(CODE_POINTS, bool)
    for start, stop in runs.reshape(-1, 2).tolist():
        left_out[start:stop] = True
    return "".join(character for character in characters if not left_out[ord(character)])


def added_tokens(definition: Definition) -> Iterator[str]:
    """Texts in which every added token is whole, cut off, beside others, and between characters of all kinds."""
    contents = [literal.content for literal in definition.literals]
    for content in contents:
        yield AROUND_TOKENS.format(content, content[:-1])
    shuffled = random.Random(0)
    for _ in range(4):
        shuffled.shuffle(contents)
        yield from map("".join, chunks(contents, 64))


def vocabulary(reference: ReferenceEngine, definition: Definition) -> Iterator[str]:
    """Texts of all tokens that are texts by themselves: as lines, and in random order without anything between them."""
    tokens = sorted(reference.tokenizer.get_vocab(with_added_tokens=False))
    if definition.byte_level:
        alphabet = byte_alphabet()
        written = [bytes(map(alphabet.__getitem__, token)) for token in tokens if alphabet.keys() >= set(token)]
        tokens = [token.decode("utf-8", "ignore") for token in written]
    tokens = [token for token in tokens if token and not any(ord(character) in SURROGATES for character in token)]
    yield from map("\n".join, chunks(tokens, BLOCK))
    random.Random(0).shuffle(tokens)
    yield from map("".join, chunks(tokens, BLOCK))
    everything = "".join(tokens)
    yield (everything * (1 + LONG // len(everything)))[:LONG] if everything else ""


def compositions(definition: Definition, probe: Probe) -> Iterator[str]:
    """Texts of all characters that normalization may compose, taken apart.

    By the tables of Python beside those of the reference, which need not be of one version.
    """
    if definition.normalizers:
        apart = {unicodedata.normalize("NFD", character) for character in every_character()}
        apart |= set(probe.changes("NFD").values())
        yield from map("x".join, chunks(sorted(text for text in apart if len(text) > 1), BLOCK))


def neighbours(family: Family) -> Iterator[str]:
    """Texts of every two ASCII characters and every two atoms side by side, and of every three of its punctuation."""
    characters = dict.fromkeys([*map(chr, range(128)), *(chr(atom[0][0]) for atom in family.alphabet())])
    for left in characters:
        if ord(left) not in SURROGATES:
            yield "".join(left + right for right in characters if ord(right) not in SURROGATES)
    for first in PUNCTUATION:
        yield "".join(first + second + third + " " for second in PUNCTUATION for third in PUNCTUATION)


def scripts(probe: Probe) -> Iterator[str]:
    """Random texts of a few characters each from all that have a meaning, and of marks in all orders."""
    source = random.Random(0)
    assigned = _without(every_character(), probe.members(MEANINGLESS))
    others = _without(assigned, probe.members(r"\p{M}"))
    marks = sorted(set(assigned) - set(others)) or [*"'"]
    for _ in range(RANDOM_TEXTS):
        some = [*source.choices(others, k=4), *source.choices(marks, k=2), *"a1 .-\n"]
        yield "".join(source.choices(some, k=24))


def random_texts(family: Family) -> Iterator[str]:
    """Texts over some characters of every atom, with what is common in between, and long runs of one character."""
    source = random.Random(0)
    common = [
        *"aAsz019 \n\r\t.,'!/_-",
        "  ",
        "\r\n",
        "'s",
        "'ll",
        "the",
        "12345",
        NOTHING,  # which tiktoken must not find
        *(t.content for t in family.definition.literals[:8]),
    ]
    rare = [chr(source.choice(source.choice(atom))) for atom in family.alphabet() for _ in range(16)]
    rare = [character for character in rare if ord(character) not in SURROGATES]
    for _ in range(RANDOM_TEXTS):
        some = source.choices(rare, k=4) + source.choices(common, k=8)
        yield "".join(source.choices(some, k=source.randrange(1, 60)))
    for character in ["a", " ", "\n", "1", ".", "\t", "é", "中", *source.choices(rare, k=8)]:
        for length in (100, 1000, 3000):
            yield f"x{character * length}y"


def packed(template: str, characters: str) -> str:
    """What some characters are put into, as one text."""
    return "".join(map(template.format, characters))


def chunks(items: Items, size: int) -> Iterator[Items]:
    """Some items at a time."""
    return (items[i : i + size] for i in range(0, len(items), size))
