"""Asks the reference library what its character classes contain, and what its normalizers do to each character.

Nothing about Unicode is known here: versions differ between libraries, and a code point that two of them classify
differently is a silent mismatch. Each answer is a function of the library's version and of the question alone, so it is
kept on disk in the platform's cache directory. A file that is damaged, or that answers something else, is ignored and
written anew.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import pathlib
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import platformdirs
import tokenizers
from attrs import define, field
from tokenizers import Regex, normalizers, pre_tokenizers

from toktier.families.pattern import Unsupported, escaped
from toktier.families.syntax import Behavior
from toktier.families.trie import compiled

CODE_POINTS = 0x110000
"""The size of the code space."""

SURROGATES = range(0xD800, 0xE000)
"""Code points that are no characters."""

CACHE_FORMAT = 2
"""Part of every key: raised when the meaning of what is stored changes."""

Runs: TypeAlias = npt.NDArray[np.int64]
"""A set of code points as the ascending boundaries ``[start, stop, start, stop, ...]`` of its runs."""

SEPARATOR = "\ua66e"
"""Put between characters that are asked about together: no normalizer changes it, joins it with another or makes it."""


FIRST_MARK, LAST_MARK = "\u0334", "\u0345"
"""Marks of the first and of the last class in canonical order."""


def default_cache_directory() -> pathlib.Path:
    """The platform's cache directory for toktier, such as ``~/.cache/toktier``."""
    return platformdirs.user_cache_path("toktier", appauthor=False)


@functools.cache
def every_character() -> str:
    """All characters of Unicode in order: every code point but the surrogates."""
    code_points = np.concatenate([np.arange(0xD800), np.arange(0xE000, CODE_POINTS)])
    return code_points.astype("<u4").tobytes().decode("utf-32-le")


def code_points_of(runs: Runs) -> list[int]:
    """The code points of a set that is given by its runs."""
    return [c for start, stop in runs.reshape(-1, 2).tolist() for c in range(start, stop)]


def blocks(text: str) -> Iterable[str]:
    """A text in parts of some thousand characters: the library is three times as fast on them as on millions."""
    return (text[i : i + 8192] for i in range(0, len(text), 8192))


@define
class DiskCache:
    """A directory of small JSON files, each with the question it answers and a checksum.

    A directory that cannot be read or written costs time, nothing else. What was asked once is remembered.

    Attributes:
        directory: Where the files lie; None keeps nothing.
    """

    directory: pathlib.Path | None = field(factory=default_cache_directory)
    _answers: dict[str, Any] = field(factory=dict, init=False, repr=False)

    def get(self, question: list[Any], compute: Callable[[], Any]) -> Any:
        """The stored answer to a question, or a new one, which is then stored.

        Args:
            question: What is asked, down to the versions that the answer depends on; JSON values.
            compute: Called when there is no valid answer on disk; returns a JSON value.
        """
        key = json.dumps([CACHE_FORMAT, *question])
        if key not in self._answers:
            self._answers[key] = self._stored(key, compute)
        return self._answers[key]

    def _stored(self, key: str, compute: Callable[[], Any]) -> Any:
        if self.directory is None:
            return compute()
        file = self.directory / f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.json"
        try:
            stored = json.loads(file.read_text(encoding="utf-8"))
            body = json.dumps(stored["answer"])
            if stored["question"] == key and stored["sha256"] == _checksum(key, body):
                return stored["answer"]
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            pass
        answer = compute()
        body = json.dumps(answer)
        self._write(file, f'{{"question":{json.dumps(key)},"sha256":"{_checksum(key, body)}","answer":{body}}}')
        return answer

    def _write(self, file: pathlib.Path, text: str) -> None:
        """Writes beside the file and renames, so that no reader ever sees half of it."""
        import tempfile

        with contextlib.suppress(OSError):
            file.parent.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(dir=file.parent, suffix=".part")
            try:
                with os.fdopen(handle, "w", encoding="utf-8") as part:
                    part.write(text)
                os.replace(name, file)
            except OSError:
                os.unlink(name)


def _checksum(key: str, body: str) -> str:
    return hashlib.sha256(f"{key}\n{body}".encode()).hexdigest()


@define
class Probe:
    """Questions to the reference library, each answered once per process and library version.

    Example:
        >>> probe = Probe(DiskCache(None))
        >>> probe.members("[a-c]").tolist(), probe.members("(?i:s)").tolist()
        ([97, 100], [83, 84, 115, 116, 383, 384])
    """

    cache: DiskCache = field(factory=DiskCache)

    def normalize(self, component: str, text: str) -> str:
        """A text as a normalizer of the library leaves it.

        Args:
            component: The normalizer as the library writes it, JSON; or its type alone, such as ``NFC``.
            text: Any text.
        """
        return _normalizer(component).normalize_str(text)

    def members(self, source: str) -> Runs:
        """The code points that a character class matches.

        Args:
            source: The class as written, in the syntax of the reference's regular expressions.
        """
        return self._runs("class", source, lambda: _removed_by(f"(?:{source})+", blocks(every_character())))

    def lookalikes(self, sequences: Iterable[str]) -> Runs:
        """Single code points that a case-insensitive sequence of ASCII characters matches, like U+FB06 for ``st``."""
        pattern = "(?i:" + "|".join("".join(map(escaped, s)) for s in sorted(sequences)) + ")"

        def compute() -> npt.NDArray[np.bool_]:
            # Letters that match one by one stand apart, so that neighbours of the code space do not form the sequence.
            everything = every_character()
            return _removed_by(pattern, ["\n".join(everything[:0x250]), *blocks(everything[0x250:])])

        return self._runs("lookalikes", pattern, compute)

    def changes(self, component: str) -> dict[int, str]:
        """What a normalizer makes of each single character that it changes and does not delete, by code point.

        Args:
            component: The normalizer as the library writes it, JSON; or its type alone, such as ``NFC``.
        """
        return {int(code): text for code, text in self._changes(component)["changed"].items()}

    def deleted(self, component: str) -> Runs:
        """The characters of which a normalizer leaves nothing; its argument is that of :meth:`changes`."""
        return np.array(self._changes(component)["deleted"], np.int64)

    def _changes(self, component: str) -> dict[str, Any]:
        def compute() -> dict[str, Any]:
            asked = "".join(map(chr, self.changes(decomposition))) if decomposition else every_character()
            normalize = _normalizer(component).normalize_str
            changed = {
                str(ord(c)): result
                for block in blocks(asked.replace(SEPARATOR, ""))
                for c, result in zip(block, normalize(SEPARATOR.join(block)).split(SEPARATOR), strict=True)
                if c != result
            }
            # Of half the code space, where it is unassigned: as runs.
            deleted = np.zeros(CODE_POINTS, bool)
            deleted[[int(code) for code, result in changed.items() if not result]] = True
            return {
                "deleted": boundaries(deleted).tolist(),
                "changed": {code: result for code, result in changed.items() if result},
            }

        # A composing form changes no single character that its decomposition leaves alone.
        decomposition = {"NFC": "NFD", "NFKC": "NFKD"}.get(component)
        answer: dict[str, Any] = self.cache.get(["changes", tokenizers.__version__, component], compute)
        return answer

    def combining(self) -> Runs:
        """The non-starters: characters that canonical ordering moves.

        Each is put between the last and the first mark of that order. A starter leaves all three where they are; a mark
        of whatever class cannot stand there, since the classes would descend.
        """

        def compute() -> npt.NDArray[np.bool_]:
            kept = every_character().translate(dict.fromkeys(self.changes("NFD")))
            # First all of them in rows, where runs of marks are ordered together; then each suspect by itself.
            suspects: list[str] = []
            for block in blocks(kept):
                row = LAST_MARK + (FIRST_MARK + LAST_MARK).join(block) + FIRST_MARK
                moved = _code_points(self.normalize("NFD", row)) != _code_points(row)
                suspects += [block[i] for i in np.flatnonzero(moved.reshape(-1, 3).any(axis=1))]
            lines = "\n".join([f"{LAST_MARK}{c}{FIRST_MARK}" for c in suspects])
            ordered = self.normalize("NFD", lines).split("\n")
            inside = np.zeros(CODE_POINTS, bool)
            inside[[ord(c) for c, line in zip(suspects, ordered, strict=True) if line[0] != LAST_MARK]] = True
            return inside

        return self._runs("combining", "NFD", compute)

    def whitespace(self) -> Runs:
        r"""What the library's added tokens strip: ``\s`` of its second regular-expression engine.

        The pre-tokenizer ``Whitespace`` runs ``\w+|[^\w\s]+`` on that engine and drops the rest.
        """
        return self.behaving("Whitespace", Behavior.DROPPED)

    def behaving(self, name: str, behavior: Behavior) -> Runs:
        """The characters with which a pre-tokenizer does something, where they stand between two letters.

        Args:
            name: Its type, such as ``Digits``.
            behavior: What it does.
        """

        def compute() -> dict[str, list[int]]:
            dropped, joined, apart = range(3)  # as in Behavior
            treated = np.full(CODE_POINTS, -1)
            pre_tokenizer = getattr(pre_tokenizers, name)()
            for block in blocks(every_character()):
                piece = _piece_of_each(pre_tokenizer, "a" + "a".join(block))
                letters, asked = piece[::2], piece[1::2]
                treated[_code_points(block)] = np.select([asked < 0, asked == letters], [dropped, joined], apart)
            return {each.name: boundaries(treated == number).tolist() for number, each in enumerate(Behavior)}

        answer = self.cache.get(["behavior", tokenizers.__version__, name], compute)
        return np.array(answer[behavior.name], np.int64)

    def scripts(self) -> list[Runs]:
        """The sets of characters that ``UnicodeScripts`` does not part; first those that it parts from none before."""

        def compute() -> list[list[int]]:
            pre_tokenizer = pre_tokenizers.UnicodeScripts()
            script = np.full(CODE_POINTS, -1)
            for block in blocks(every_character()):
                rows = [_piece_of_each(pre_tokenizer, letter + letter.join(block)) for letter in "aя"]
                joined = np.logical_and(*(row[::2] == row[1::2] for row in rows))
                script[_code_points(block)[joined]] = 0
            known: list[str] = []
            for block in blocks("".join(c for c in every_character() if script[ord(c)])):
                for run, _ in pre_tokenizer.pre_tokenize_str(block):
                    row = _piece_of_each(pre_tokenizer, "".join(one + run[0] for one in known))
                    same = np.flatnonzero(row[::2] == row[1::2]).tolist()
                    if not same:
                        known.append(run[0])
                    script[_code_points(run)] = same[0] + 1 if same else len(known)
            return [boundaries(script == number).tolist() for number in range(len(known) + 1)]

        answer = self.cache.get(["scripts", tokenizers.__version__], compute)
        return [np.array(runs, np.int64) for runs in answer]

    def trimmed(self) -> Runs:
        """What the normalizer ``Strip`` takes off the ends of a text."""

        def compute() -> npt.NDArray[np.bool_]:
            inside = np.zeros(CODE_POINTS, bool)
            strip = normalizers.Strip().normalize_str
            inside[[ord(c) for c in every_character() if not strip(c)]] = True
            return inside

        return self._runs("trimmed", "Strip", compute)

    def clusters(self) -> tuple[list[int], list[int]]:
        """The characters that are in one grapheme cluster with any letter before them, and with any behind them.

        ``Precompiled`` looks for the beginning of a cluster in its map, and puts one image in the place of all of it.
        """

        def compute() -> list[list[int]]:
            everything = every_character()
            behind = normalizers.Precompiled(compiled("a", "A")).normalize_str
            before = normalizers.Precompiled(compiled("a\u0301", "A")).normalize_str
            appended = [ord(c) for c in everything if behind("a" + c) == "A"]
            prepended = [ord(c) for c in everything if "A" not in before(c + "a\u0301")]
            return [appended, prepended]

        appended, prepended = self.cache.get(["clusters", tokenizers.__version__], compute)
        return appended, prepended

    def _runs(self, kind: str, source: str, compute: Callable[[], npt.NDArray[np.bool_]]) -> Runs:
        answer = self.cache.get([kind, tokenizers.__version__, source], lambda: boundaries(compute()).tolist())
        return np.array(answer, np.int64)


def _removed_by(pattern: str, texts: Iterable[str]) -> npt.NDArray[np.bool_]:
    """Which characters are missing after the reference has replaced every match of a pattern by nothing.

    This is the fastest way through the library's own regular expressions: a tenth of a second for all of Unicode.
    """
    try:
        replace = normalizers.Replace(Regex(pattern), "")
    except Exception as error:
        raise Unsupported(f"the library refuses {pattern!r} by itself: {error}") from None
    return _missing(map(replace.normalize_str, texts))


def _piece_of_each(pre_tokenizer: pre_tokenizers.PreTokenizer, text: str) -> npt.NDArray[np.int64]:
    """The number of the piece that each character of a text is in, or -1; shape (characters,)."""
    starts, stops = np.array([span for _, span in pre_tokenizer.pre_tokenize_str(text)], np.int64).reshape(-1, 2).T
    sizes = stops - starts
    piece = np.full(len(text), -1)
    piece[np.arange(sizes.sum()) + np.repeat(starts - np.cumsum(sizes) + sizes, sizes)] = np.repeat(
        np.arange(len(sizes)), sizes
    )
    return piece


def _missing(texts: Iterable[str]) -> npt.NDArray[np.bool_]:
    """Which characters of Unicode are in none of the texts; by code point, shape (0x110000,)."""
    missing = np.zeros(CODE_POINTS, bool)
    missing[_code_points(every_character())] = True
    missing[_code_points("".join(texts))] = False
    return missing


@functools.lru_cache(64)
def _normalizer(component: str) -> normalizers.Normalizer:
    """A normalizer of the library, from what it writes itself."""
    state = component if component.startswith("{") else f'{{"type":"{component}"}}'
    tokenizer = f'{{"normalizer":{state},"model":{{"type":"BPE","vocab":{{}},"merges":[]}}}}'
    result: normalizers.Normalizer = tokenizers.Tokenizer.from_str(tokenizer).normalizer
    return result


def _code_points(text: str) -> npt.NDArray[np.uint32]:
    return np.frombuffer(text.encode("utf-32-le"), np.uint32)


def boundaries(inside: npt.NDArray[np.bool_]) -> Runs:
    """A set of code points, by a flag for each, as its runs."""
    return np.flatnonzero(np.diff(np.concatenate(([False], inside, [False])).view(np.int8)))
