"""Texts made to go wrong: what tokenizers, regular expressions and versions of Unicode treat differently, side by side.

A test that draws from all of Unicode finds little, since most characters are alike to a tokenizer. So texts are put
together from *fragments*: one or a few characters of every atom of the family, so that every pair of the relation comes
up; its added tokens and torn parts of them; and a list of what has surprised tokenizers before.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import chain

from toktier.families.family import Family
from toktier.families.literal import Literal
from toktier.tokenizer import Tokenizer

WHITE_SPACE = (*"\t\n\v\f\r \u0085\u00a0\u1680\u2028\u2029\u202f\u205f\u3000", *map(chr, range(0x2000, 0x200B)))
"""All of Unicode's White_Space property."""

_LISTED = {
    "words": (
        "a b s t re ll Z the The THE word camelCase XMLHttpRequest snake_case aB Ab aBC iPhone x1 1x naïve "
        "Ångström straße привет Привет ελληνικά"
    ),
    "punctuation": (
        "! \" # $ % & ' ( ) * + , - . / : ; < = > ? @ [ \\ ] ^ _ ` { | } ~ ¡ « » — – … · • 。 、 ， ！ 「 」 ، ؟ "
        "। ፡ € £ ∑ ≠ ← ° © ® ™ '' `` // /* <| |> ... != -> #! _'"
    ),
    "contractions": (
        "'s 'S 't 'T 're 'RE 'Re 've 'VE 'm 'M 'll 'LL 'lL 'd 'D \u2019s 'ſ 'ſs 'l 'r 'v n't N'T don't DON'T it's "
        "we'll I'm 's's ''s 'st"
    ),
    "digits": (
        "0 7 12 123 1234 12345 1234567 3.14 1,000 0x1F 2e-5 1st v2 "
        # Decimal digits of other scripts, two of them newer than Unicode 15; then letters and other numbers.
        "٣ ۴ ४ ৫ ๖ ༣ ៥ ５ \U0001d7d3 \U000104a3 \U00010d40 \U0001ccf1 ٣٤٥٦ ४५६७ ² ¹ ½ ¼ ① ⑳ Ⅷ ⅷ 〇 三 〢 ༪ \u19da "
        "௰ \U00010107 ⁵ ₅ ²³"
    ),
    "marks": (
        # Bare ones, of the first and last class in canonical order too; then sequences in right and in wrong order.
        "\u0301 \u0323 \u0338 \u0345 \u0334 \u0489 \u20dd \u034f \u05b4 \u0651 \u3099 é e\u0301 e\u0301\u0301 ệ "
        "e\u0323\u0302 e\u0302\u0323 q\u0323\u0307 q\u0307\u0323 \u1e9b\u0323 s\u0323\u0307 s\u0307\u0323 "
        "\u0301\u0323 \u0323\u0301 \u0301\u0334 \u0334\u0301 \u0345\u0334 α\u0345\u0301 α\u0301\u0345 ᾴ "
        "\u05e9\u05bc\u05c1 \u05e9\u05c1\u05bc \u0651\u064b \u064b\u0651 "
        # Symbols that compose, and characters that normalization replaces by another one or takes apart.
        "<\u0338 >\u0338 =\u0338 ≮ ≯ ≠ /\u0338 \u2adc A\u030a \u212b \u2126 \u037e \u0387 \u0344 \u0340 \u0343 "
        "\u1fef \u1f71 `\u0301 ¨\u0301 \u0385"
    ),
    "vowel signs": (
        # U+0958 and its like are never composed again; the others are two or three characters that make one.
        "\u0958 \u0958/ \u0915\u093c \u0928\u093c \u0929 \u093c \u094d क्ष हिन्दी \u09dc \u09c7\u09be \u09cb "
        "\u09c7 \u09be \u09c7\u09d7 \u09d7 \u0b47\u0b56 \u0b57 \u0b92\u0bd7 \u0bc6\u0bbe \u0bc6 \u0bbe \u0bca "
        "\u0cbf\u0cd5 \u0cc6\u0cc2\u0cd5 \u0d46\u0d3e தமிழ் \u0dd9\u0dcf\u0dca \u0dca \u1025\u102e \u102e "
        "\u0f71\u0f72 \u0f72\u0f71 \u0f73 \u0f81 \u0fb2\u0f80 \u1b05\u1b35 \u1b35 \u0e33 \u0e4d\u0e32 ไทย "
        "\u0ecd\u0eb2 \U00011099\U000110ba \U000110ba \U00011131\U00011127 \U000114b9\U000114ba "
        "\U000115b8\U000115af \U00011935\U00011930 \U0001d15e \U0001d1bb \U0001d165 \U0001d158\U0001d165 "
        # Compositions that came with Unicode 16.
        "\U0001611e\U0001611e \U0001611e \U00016d67\U00016d67 \U00016d63 \U000113c2\U000113c2"
    ),
    "jamo": (
        "\u1112 \u1161 \u11ab \u1112\u1161 \u1112\u1161\u11ab \u1161\u11ab \u1112\u11ab 하\u11ab 하 한 한\u11ab "
        "한국어 \u1100\u1100\u1161 \u11a7 하\u11a7 \u1113 \u1113\u1161 \u11c3 \ua960 \ud7b0 하\ud7cb ㅎ ㅏ ﾡ "
        "\u115f \u3164 \uffa0 하\u0301 \u1112\u0301\u1161"
    ),
    "ideographs and kana": (
        "中 文 中文 日本語 龥 鿿 㐀 \U00020000 \uf900 \ufa0e \U0002f800 々 〆 ー ・ あ ア か\u3099 が は\u309a "
        "\u309a ｶﾞ ﾞ ヷ ワ\u3099 ゛ ㍿ ㌀ ゟ カナ ㊀"
    ),
    "emoji": (
        "😀 👍 👍🏽 🏽 👩\u200d👩\u200d👧 👩🏽\u200d🚀 🏳\ufe0f\u200d🌈 \u200d 🇺🇸 🇺 🇺🇸🇫 🇺🇸🇫🇷 "
        "\U0001f3f4\U000e0067\U000e0062\U000e007f \U000e0067 ❤ ❤\ufe0f ❤\ufe0e \ufe0f \ufe0e ☺ 1\ufe0f\u20e3 "
        "#\ufe0f\u20e3 \u20e3 葛\U000e0100 \U000e0100 a\u200db क\u200dष क\u200cष"
    ),
    "case": (
        # One character that folds to two, two that are matched by one, letters of three cases, final sigma.
        "ſ \u212a ß ẞ ss SS İ ı I i\u0307 ŉ ʼn ﬆ ﬅ ﬁ ﬀ ﬄ st ST ff fi ǅ ǆ Ǆ ǰ ΐ Σ ς ΑΣ µ μ ẖ ẚ ᾳ ᾼ Ⓚ ⓚ ℌ Ｓ ｓ "
        "\U0001d400 ʰ ª ˢ ʼ \u1c80 \u1c90 ა Ꭰ \uab70 \U00010400 \U0001e900 \u1c89 \ua7cb \ua7dc"
    ),
    "right to left": (
        "שלום \u05e9\u05c1 \ufb2a \ufb1d العربية لا ﻻ \u0622 \u0627\u0653 \u06c1\u0654 \ufdfa اب12 ٪ \u0640 "
        "\u200e \u200f \u061c \u202a \u202c \u202e \u2066 \u2069"
    ),
    "odd": (
        "\x00 \x01 \x08 \x1b \x7f \x80 \x9f \xad \u200c \u2061 \ufffc \ufffd \ufff9 "
        # Noncharacters, private use, unassigned, tags; the neighbours of the surrogates.
        "\ufffe \uffff \ufdd0 \U0001fffe \U0010ffff \ue000 \uf8ff \U000f0000 \U00100000 \u0378 \u2fe0 \ud7ff "
        "\U000323b0 \U000e0001 \U000e0020 \U000e0fff \U0001cc00 \U00010d50"
    ),
}

GROUPS: dict[str, Sequence[str]] = {
    **{kind: fragments.split() for kind, fragments in _LISTED.items()},
    "whitespace": (
        *WHITE_SPACE,
        # Not whitespace to all: separators that Python strips, a former space, spaces of no width.
        *("\x1c", "\x1d", "\x1e", "\x1f", "\u180e", "\u200b", "\u2060", "\ufeff"),
        *("\r\n", "\n\r", "\r\r\n", "\n\n", "\r\n\r\n", " \n", "\n ", "\n \n", " \r\n ", "\t\n", "  ", "   ", "\t\t"),
        *(" \t ", "\u3000\n", " \u00a0", "\u00a0 ", "\u2028 ", "\u0085\n", "\v\f", "\u2003\u2003"),
        *(" the", " of", " .", " '", "-\n", ".\n", "?\r\n", "/\n", " \u0301", "\n\u0301", "ΑΣ "),
    ),
    "code": (
        *("def f(x):\n    return x\n", "https://a.b/c?d=e&f=1", "```py\n", '{"a": [1, 2]}', "x += 1;", "</p>", "a@b.c"),
        *(
            "if (a)\n\t{\n\t}\n",
            "# -*- coding",
            "\n\n\n    ",
            "$x->y",
            "a.b.c",
            "--flag=1",
            "C:\\x",
            "::",
            "<|x|>",
            "\\n",
        ),
    ),
    "runs": (
        *("a" * 40, "A" * 13, "ab" * 20, " " * 17, "\n" * 9, "\t" * 8, "\r\n" * 5, "1" * 25, "." * 23, "-" * 31),
        *("'" * 5, "_" * 6, "中" * 12, "é" * 9, "\u0301" * 35, "\u3000" * 5, "👍" * 6, "한" * 7, "\u1112" * 4),
        *(" a" * 9, "\n " * 6, "1 " * 5, "e\u0301" * 6),
    ),
}
"""What has surprised tokenizers before, by kind."""

EVERYWHERE = ("a", "s", "A", " ", "\n", "'", "1", ".", "\u0301")
"""What is worth having beside anything else."""

MOST_LITERALS = 40


def fragments(tok: Tokenizer, seed: int = 0) -> list[str]:
    """What adversarial texts for a tokenizer are put together from: no empty one, none twice.

    Args:
        tok: Whose atoms and added tokens to take.
        seed: Another seed takes other members of each atom, and tears the added tokens elsewhere.
    """
    source = random.Random(seed)
    family = tok.family
    pool = chain(members(family, source), literals(family, source), *GROUPS.values())
    return list(dict.fromkeys(filter(None, pool)))


def members(family: Family, source: random.Random, more: int = 3) -> Iterator[str]:
    """The first character of every atom, and some others: from any range of it, however short."""
    for ranges in family.alphabet():
        yield from (chr(c) for c in [ranges[0].start] if not 0xD800 <= c < 0xE000)
        for _ in range(more):
            c = source.choice(source.choice(ranges))
            if not 0xD800 <= c < 0xE000:
                yield chr(c)


def literals(family: Family, source: random.Random) -> Iterator[str]:
    """Added tokens: whole, torn, doubled, and beside what their flags look at."""
    for literal in chosen(family.definition.literals):
        text = literal.content
        half = len(text) // 2
        start, stop = sorted(source.choices(range(len(text) + 1), k=2))
        yield from (text, text[:half], text[half:], text[:-1], text[1:], text[start:stop])
        yield from (f" {text}", f"{text} ", text[:half] + text)
        if literal.lstrip or literal.rstrip:
            yield from (f"\n{text}", f"{text}\n", f"\t \u00a0{text}", f"{text}\u3000\r\n")
        if literal.single_word:
            yield from (f"a{text}", f"{text}a", f"-{text}", f"{text}1", text + text)
        if literal.normalized:
            yield from (text.upper(), text.lower(), f"{text}\u0301", text.swapcase())


def chosen(all_literals: Sequence[Literal]) -> list[Literal]:
    """At most MOST_LITERALS of them: first one of each combination of flags, then evenly from the rest."""
    flags = {(t.special, t.normalized, t.lstrip, t.rstrip, t.single_word): t for t in reversed(all_literals)}
    stride = -(-len(all_literals) // (MOST_LITERALS - len(flags)))
    return list(dict.fromkeys([*flags.values(), *all_literals[:: max(stride, 1)]]))


def random_text(source: random.Random, pool: Sequence[str], low: int, high: int) -> str:
    """A text of ``low`` to ``high`` fragments.

    Most are made of few different ones, so that the same neighbours meet in several contexts.
    """
    different = source.choice((2, 3, 5, 8, 13, len(pool)))
    palette = pool if different == len(pool) else [*source.choices(pool, k=different), source.choice(EVERYWHERE)]
    parts = source.choices(palette, k=source.randint(low, high))
    for i in range(len(parts)):
        if source.random() < 0.05:
            parts[i] *= source.randint(2, 4)
    return "".join(parts)
