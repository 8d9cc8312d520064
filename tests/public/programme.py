"""What every definition of a family goes through: the programme of :mod:`toktier.campaign`, and three more checks."""

from __future__ import annotations

import bisect
import itertools
import random
from collections import Counter
from collections.abc import Iterator, Sequence

import toktier
from tests import material
from tests.campaign import replayed
from toktier.campaign.operations import Operation, Program, append, cut, shown
from toktier.campaign.programs import reference_ids, run
from toktier.campaign.texts import fragments, random_text
from toktier.campaign.verification import Campaign
from toktier.engines.reference import ReferenceEngine

PARTS = 12
"""Parts of a text that a session is given one after the other."""


def engine_of(tok: toktier.Tokenizer) -> str:
    """The fastest engine that needs no comparison with the reference."""
    return "memo" if tok.family.supported else ReferenceEngine.name


def campaign(tok: toktier.Tokenizer, files: Sequence[str], seconds: float, seed: int = 0) -> Campaign:
    """The programme of ``toktier verify``, done; its ``difference`` is None when nothing differs.

    Args:
        tok: The tokenizer.
        files: Real texts.
        seconds: For how long; everything has one turn at least.
        seed: Of everything random.
    """
    done = Campaign(tok, files, [engine_of(tok)], seed)
    for _ in done.steps(seconds):
        pass
    return done


def each_cut_alone(tok: toktier.Tokenizer, texts: int, seed: int = 0) -> tuple[int, list[str]]:
    """Cuts adversarial texts at one certified cut at a time.

    Returns:
        How many cuts there were, and the texts in which one changes ids, with the place marked.
    """
    engine = tok.engine(ReferenceEngine.name)
    source = random.Random(f"{seed} each cut alone")
    pool = fragments(tok, source.randrange(1 << 30))
    count, wrong = 0, []
    for _ in range(texts):
        text = random_text(source, pool, 2, 12)
        expected = engine.encode(text).tolist()
        for at in tok.family.cuts(text, continuation=True).tolist():
            count += 1
            left, right = engine.encode(text[:at]), engine.encode(text[at:], continuation=True)
            if left.tolist() + right.tolist() != expected:
                wrong.append(f"{text[:at]!r} | {text[at:]!r}")
    return count, wrong


def real_programs(sessions: int, languages: int, characters: int) -> Iterator[Program]:
    """Agent sessions replayed by appends and by updates; declarations in some languages, cut and appended in parts.

    Args:
        sessions: How many sessions.
        languages: How many of the texts in a hundred languages, if these are there.
        characters: After how many of a session to stop, and how many of a declaration to take.
    """
    for messages in material.agent_sessions()[:sessions]:
        sizes = itertools.accumulate(len(message["content"]) for message in messages)
        within = bisect.bisect(list(sizes), characters)
        yield from replayed(messages[: max(within, 1)])
    texts = material.declarations()
    for text in texts[:: max(1, len(texts) // languages)]:
        some = text[:characters]
        size = -(-len(some) // PARTS)
        yield [cut(some), *(append(some[i : i + size]) for i in range(0, len(some), size))]


def replays(tok: toktier.Tokenizer, programs: Iterator[Program]) -> tuple[Counter[str], str | None]:
    """Leads sessions through programs.

    Returns:
        What was done, in numbers, and the first difference, in words.
    """
    counts, reference = Counter[str](), reference_ids(tok)
    engine = tok.engine(engine_of(tok))
    for program in programs:
        counts["replayed"] += len(program)
        if problem := run(program, tok, reference, engine):
            return counts, f"{problem}\n{shown(_up_to(program, problem.number))}"
    return counts, None


def _up_to(program: Program, number: int | None) -> list[Operation]:
    return list(program)[:number]
