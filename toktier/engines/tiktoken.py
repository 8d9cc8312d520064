"""tiktoken: byte-level BPE behind one split pattern, in about a sixth of the reference's time.

The library is given the family's own vocabulary and pattern. In the pattern, each character class is written out as the
code points that the *reference* has in it, so that there are no Unicode tables to disagree about, and so is what
``(?i)`` matches. Normalization is not left to the library, and added tokens only where it cannot choose otherwise than
the reference: between them stand a hundred characters, and a call for each stretch would take as long as the encoding.
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet

import numpy as np
import tiktoken

from toktier.engines.base import Ids, Inapplicable
from toktier.engines.literals import Literals
from toktier.engines.normality import Normality, refuse_other_rewriting
from toktier.engines.ranks import ranks_of
from toktier.engines.reference import ReferenceEngine
from toktier.families import syntax
from toktier.families.family import Family
from toktier.families.probing import Probe
from toktier.families.splitting import members
from toktier.families.stages import ByteLevel, Pieces, Splitter
from toktier.families.syntax import UNBOUNDED, CharacterClass, Mode, Node

NOTHING = "\uffff\ufffe"
"""A special token that the library is told of when there is no other: without any, it would look everywhere."""


class TiktokenEngine:
    """Encodes with ``tiktoken``.

    Args:
        family: What to encode for.
        reference: Encodes the texts with added tokens whose flags look beyond them; normalizes.
        probe: Where the reference is asked what its character classes contain.

    Raises:
        Inapplicable: More than one split pattern, or something else that the library does not do.

    Example:
        >>> import toktier
        >>> toktier.load("toktier-mini").engine("tiktoken").encode("Hello world")
        array([  39,  523,  323, 3241, 1151], dtype=uint32)
    """

    name = "tiktoken"

    def __init__(self, family: Family, reference: ReferenceEngine, probe: Probe) -> None:
        self.check(family, reference)
        definition = family.definition
        self._literals = Literals(definition, probe)
        self._reference = reference
        self._normalizer = reference.tokenizer.normalizer if definition.normalizers else None
        self._normality = Normality(definition.normalizers, probe)
        ranks = ranks_of(reference.tokenizer, family.digest, probe.cache)
        added = self._literals.raw.ids if self._literals.raw else {NOTHING: 0}
        ids = np.concatenate([ranks.ids, np.array([*added.values()], np.uint32)])
        self._ids = None if (ids == np.arange(len(ids))).all() else ids
        try:
            self._encoding = tiktoken.Encoding(
                family.digest,
                pat_str=pieces(definition.splitters[0], probe),
                mergeable_ranks=ranks.ranks,
                special_tokens={content: len(ranks.ranks) + i for i, content in enumerate(added)},
            )
        except Exception as error:
            raise Inapplicable(f"the library refuses the family: {error}") from None

    @staticmethod
    def version() -> str:
        """The library's."""
        return tiktoken.__version__

    @staticmethod
    def check(family: Family, reference: ReferenceEngine) -> None:
        """Raises :class:`Inapplicable` for what can be told at once."""
        definition = family.definition
        if not definition.byte_level or definition.model != "BPE":
            raise Inapplicable("the model is no byte-level BPE")
        if len(definition.splitters) != 1:
            raise Inapplicable(f"there are {len(definition.splitters)} split patterns in a row")
        if definition.pre_tokenizers != (definition.splitters[0], ByteLevel()):
            raise Inapplicable("a pre-tokenizer does more than divide by a pattern")
        refuse_other_rewriting(definition)
        if reference.tokenizer.encode_special_tokens:
            raise Inapplicable("special tokens are encoded as text")

    def encode(self, text: str, *, continuation: bool = False) -> Ids:
        """The ids of a text, uint32, shape (tokens,)."""
        literals = self._literals
        if literals.flagged and literals.flagged.search(text):
            return self._reference.encode(text, continuation=continuation)
        if not literals.raw or not (found := literals.raw.found(text)):
            return self._between(text)
        if literals.raw.unambiguous and self._is_ordinary(text):
            return self._encoded(text, found)
        return np.concatenate(
            [self._between(part) if id is None else np.array([id], np.uint32) for part, id in literals.raw.divide(text)]
        )

    def encode_batch(self, texts: Sequence[str], *, continuation: bool = False) -> list[Ids]:
        """The ids of several texts."""
        return [self.encode(text, continuation=continuation) for text in texts]

    def _between(self, text: str) -> Ids:
        """The ids of what stands between raw added tokens."""
        if self._is_ordinary(text):
            return self._encoded(text)
        if self._normalizer is not None:
            text = self._normalizer.normalize_str(text)
        normalized = self._literals.normalized
        if not normalized or not normalized.search(text):
            return self._encoded(text)
        parts = normalized.divide(text)
        return np.concatenate([self._encoded(part) if id is None else np.array([id], np.uint32) for part, id in parts])

    def _is_ordinary(self, text: str) -> bool:
        """Whether the normalizers leave a text alone, and no added token is looked for after them."""
        normalized = self._literals.normalized
        return self._normality.is_sure(text) and not (normalized and normalized.search(text))

    def _encoded(self, text: str, added: AbstractSet[str] = frozenset()) -> Ids:
        """The ids of a normalized text, in which some added tokens are found and all others are text."""
        ranks = self._encoding.encode_to_numpy(text, allowed_special=added, disallowed_special=())
        return ranks if self._ids is None else self._ids[ranks]


def pieces(splitter: Splitter, probe: Probe) -> str:
    """A pattern whose matches are the pieces that a splitter makes, in the syntax of Rust's ``fancy-regex``.

    Raises:
        Inapplicable: The pieces are other than the matches, or those and the gaps.
    """
    if splitter.keeps not in (Pieces.ALL, Pieces.MATCHES):
        raise Inapplicable(f"the pieces are {splitter.keeps.value}")
    matches = written(splitter.tree, probe)
    if splitter.keeps is Pieces.MATCHES:
        return matches
    # A gap lasts for as long as no match begins.
    return f"{matches}|(?:(?!{matches})[\\x{{0}}-\\x{{10FFFF}}])+"


def written(node: Node, probe: Probe) -> str:
    r"""A tree as a regular expression in which every class is the code points that the reference has in it.

    Example:
        >>> from toktier.families.pattern import parse
        >>> written(parse(r"(?i:s)++|\d?"), Probe())[:66]
        '(?:(?>(?:[\\x{53}\\x{73}\\x{17F}]){1,})|(?:[\\x{30}-\\x{39}\\x{660}-\\x{6'
    """
    if isinstance(node, CharacterClass):
        runs = members(node, probe).reshape(-1, 2).tolist()
        if not runs:
            return r"[^\x{0}-\x{10FFFF}]"
        return f"[{''.join(_run(start, stop - 1) for start, stop in runs)}]"
    if isinstance(node, syntax.Sequence):
        return f"(?:{''.join(written(item, probe) for item in node.items)})"
    if isinstance(node, syntax.Alternation):
        return f"(?:{'|'.join(written(branch, probe) for branch in node.branches)})"
    inner = written(node.node, probe)
    if isinstance(node, syntax.Atomic):
        return f"(?>{inner})"
    if isinstance(node, syntax.Lookahead):
        return f"(?{'!' if node.negative else '='}{inner})"
    repeated = f"(?:{inner}){{{node.minimum},{'' if node.maximum >= UNBOUNDED else node.maximum}}}"
    if node.mode is Mode.POSSESSIVE:
        return f"(?>{repeated})"
    return repeated + "?" * (node.mode is Mode.LAZY)


def _run(first: int, last: int) -> str:
    return f"\\x{{{first:X}}}" if first == last else f"\\x{{{first:X}}}-\\x{{{last:X}}}"
