"""Loading: from wherever, each content once, and errors that say what is wrong."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import tokenizers
from tokenizers import AddedToken

import toktier
from tests import builders, material, zoo
from toktier import InvalidDefinition, Registry, Tokenizer, UnknownTokenizer
from toktier.families.loading import load_reference

TEXT = "It's <|im_start|>12 straße\n\n  ½"


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def registry(cache: pathlib.Path) -> Registry:
    """A new one, which has no tokenizer yet."""
    return Registry(cache)


def written(file: pathlib.Path, tokenizer: tokenizers.Tokenizer) -> pathlib.Path:
    file.parent.mkdir(exist_ok=True)
    file.write_text(tokenizer.to_str(), encoding="utf-8")
    return file


def ids(tokenizer: tokenizers.Tokenizer) -> list[int]:
    return material.reference_of(tokenizers.Tokenizer.from_str(tokenizer.to_str()))(TEXT)


class PathLike:
    def __init__(self, path: str) -> None:
        self.path = path

    def __fspath__(self) -> str:
        return self.path


def linked(file: pathlib.Path) -> pathlib.Path:
    link = file.with_name("link")
    link.symlink_to(file)
    return link


WAYS: dict[str, Callable[[pathlib.Path], Any]] = {
    "path": lambda file: file,
    "string": str,
    "folder": lambda file: file.parent,
    "folder as a string": lambda file: f"{file.parent}{os.sep}",
    "relative path": os.path.relpath,
    "link": linked,
    "path-like": lambda file: PathLike(str(file)),
    "object": lambda file: tokenizers.Tokenizer.from_file(str(file)),
}


@pytest.mark.parametrize("way", WAYS)
def test_whatever_leads_to_a_tokenizer_loads_it(tmp_path: pathlib.Path, registry: Registry, way: str) -> None:
    file = written(tmp_path / "folder" / "tokenizer.json", zoo.build("gpt4"))
    tok = registry.load(WAYS[way](file))
    assert tok.encode(TEXT).tolist() == ids(zoo.build("gpt4"))
    assert registry.load(file) is tok


def test_a_file_may_have_any_name(tmp_path: pathlib.Path, registry: Registry) -> None:
    file = written(tmp_path / "größe ½" / "mine", zoo.build("gpt4"))
    assert registry.load(file).family.supported


def test_the_bundled_tokenizer_loads_by_its_name() -> None:
    tok = toktier.load("toktier-mini")
    assert tok is Registry.default().load("toktier-mini")
    assert tok.encode(TEXT).tolist() == material.reference("toktier-mini")(TEXT)


def test_every_way_to_write_one_tokenizer_is_one_object(tmp_path: pathlib.Path, registry: Registry) -> None:
    definition = json.loads(zoo.build("gpt4").to_str())
    sources: list[pathlib.Path] = []
    styles: list[dict[str, Any]] = [{}, {"indent": 2}, {"sort_keys": True}, {"indent": 2}]
    for i, style in enumerate(styles):
        sources.append(tmp_path / f"{i}.json")
        sources[-1].write_text(json.dumps(definition, **style))
    loaded = [*map(registry.load, sources + sources), registry.load(zoo.build("gpt4"))]
    assert len({*map(id, loaded)}) == 1
    assert len({id(tok.family) for tok in loaded}) == 1


def test_another_tokenizer_is_another_object(registry: Registry) -> None:
    loaded = [registry.load(zoo.build(name)) for name in ("gpt2", "gpt4", "NFC", "templated")]
    assert len({*map(id, loaded)}) == len({tok.family.digest for tok in loaded}) == 4


def test_a_file_that_changed_is_loaded_anew(tmp_path: pathlib.Path, registry: Registry) -> None:
    file = written(tmp_path / "tokenizer.json", zoo.build("gpt2"))
    before = registry.load(file)
    written(file, zoo.build("gpt4"))
    after = registry.load(file)
    assert before is not after
    assert before.encode(TEXT).tolist() == ids(zoo.build("gpt2"))
    assert after.encode(TEXT).tolist() == ids(zoo.build("gpt4"))


def test_registries_share_no_tokenizer_but_agree_on_its_identity(registry: Registry) -> None:
    one, two = registry.load(zoo.build("gpt4")), Registry(None).load(zoo.build("gpt4"))
    assert one is not two
    assert one.family.digest == two.family.digest


def test_what_becomes_of_the_object_that_was_passed_plays_no_part(registry: Registry) -> None:
    passed = tokenizers.Tokenizer.from_str(zoo.build("gpt4").to_str())
    expected = ids(passed)
    tok = registry.load(passed)
    passed.enable_truncation(2)
    passed.enable_padding(length=50)
    assert registry.load(passed) is tok
    passed.add_tokens([AddedToken("straße")])
    passed.pre_tokenizer = None
    assert tok.encode(TEXT).tolist() == expected
    assert registry.load(passed) is not tok


def test_an_object_that_cannot_be_copied_faithfully_is_refused(registry: Registry) -> None:
    passed = tokenizers.Tokenizer.from_str(zoo.build("gpt4").to_str())
    passed.model = tokenizers.models.BPE()
    with pytest.raises(InvalidDefinition, match="other ids once it is saved"):
        registry.load(passed)


def test_an_object_is_read_once(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    passed, read = tokenizers.Tokenizer.from_str(zoo.build("gpt4").to_str()), list[bytes]()

    def reading(source: bytes, where: str) -> tokenizers.Tokenizer:
        read.append(source)
        return load_reference(source, where)

    monkeypatch.setattr("toktier.registry.load_reference", reading)
    assert registry.load(passed) is registry.load(passed)
    assert len(read) == 1


def test_an_object_that_takes_special_tokens_for_text_is_loaded_as_such(registry: Registry) -> None:
    passed = tokenizers.Tokenizer.from_str(zoo.build("gpt4").to_str())
    usual = registry.load(passed)
    passed.encode_special_tokens = True
    tok = registry.load(passed)
    assert tok.family.digest != usual.family.digest
    text = "a<|im_end|>\n<|im_start|>b"
    assert (
        tok.session(text).tolist() == passed.encode(text, add_special_tokens=False).ids != usual.encode(text).tolist()
    )


def test_loading_leaves_the_object_that_was_passed_as_it_was(registry: Registry) -> None:
    passed = builders.templated()
    before = passed.to_str()
    registry.load(passed)
    assert passed.to_str() == before
    assert len(passed.encode("a").ids) == 16


# Threads


def at_once(registry: Registry, sources: list[Any]) -> list[Tokenizer]:
    """What loading all of them at the same time gives."""
    barrier = threading.Barrier(len(sources))

    def load(source: Any) -> Tokenizer:
        barrier.wait()
        return registry.load(source)

    with ThreadPoolExecutor(len(sources)) as pool:
        return list(pool.map(load, sources))


def test_threads_that_load_at_once_get_one_object_for_one_content(
    tmp_path: pathlib.Path, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = Counter[str]()

    def counting(source: bytes, where: str) -> tokenizers.Tokenizer:
        read[where] += 1
        return load_reference(source, where)

    monkeypatch.setattr("toktier.registry.load_reference", counting)
    names = ("gpt2", "gpt4", "NFC", "lookbehind")
    files = [written(tmp_path / f"{name}.json", zoo.build(name)) for name in names]
    indented = tmp_path / "indented.json"
    indented.write_text(json.dumps(json.loads(files[1].read_text()), indent=1))
    loaded = at_once(registry, [*files, indented] * 4)
    assert {str(file): 1 for file in (*files, indented)} == read, "each content is read once"
    assert len({*map(id, loaded)}) == len(names)
    for name, tok in zip(names, loaded, strict=False):
        assert tok.encode(TEXT).tolist() == ids(zoo.build(name))
        assert registry.load(zoo.build(name)) is tok


def test_a_load_that_fails_fails_for_every_thread_and_leaves_nothing_behind(
    tmp_path: pathlib.Path, registry: Registry
) -> None:
    file = tmp_path / "tokenizer.json"
    file.write_text("{")

    def load(_: int) -> str:
        with pytest.raises(InvalidDefinition) as error:
            registry.load(file)
        return str(error.value)

    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(load, range(8)))) == 1
    written(file, zoo.build("gpt4"))
    assert registry.load(file).family.supported


# The cache of a registry


def test_a_second_process_finds_the_answers_of_the_first(tmp_path: pathlib.Path) -> None:
    cache = tmp_path / "cache"
    first = Registry(str(cache)).load(zoo.build("gpt4"))
    files = {file: file.stat().st_mtime_ns for file in cache.iterdir()}
    assert files
    again = Registry(cache).load(zoo.build("gpt4"))
    assert {file: file.stat().st_mtime_ns for file in cache.iterdir()} == files
    assert again.report(compare=False) == first.report(compare=False)
    assert again.family.alphabet() == first.family.alphabet()


def test_a_cache_that_is_damaged_in_every_file_changes_nothing(tmp_path: pathlib.Path) -> None:
    cache = tmp_path / "cache"
    first = Registry(cache).load(zoo.build("gpt4"))
    good = {file: file.read_bytes() for file in cache.iterdir()}
    for i, file in enumerate(good):
        file.write_bytes([b"", b"{}", good[file][:-3], good[file].replace(b"1", b"2", 1)][i % 4])
    again = Registry(cache).load(zoo.build("gpt4"))
    assert again.report(compare=False) == first.report(compare=False)
    assert {file: file.read_bytes() for file in cache.iterdir()} == good


def test_without_a_cache_directory_nothing_is_written(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert Registry(None).load(zoo.build("gpt4")).family.supported
    assert list(tmp_path.iterdir()) == []


# Errors


@pytest.mark.parametrize(
    "source", ["", None, 3, b"toktier-mini", ["toktier-mini"], object(), 1.5, tokenizers.models.BPE()]
)
def test_what_is_no_source_at_all_is_a_type_error(registry: Registry, source: Any) -> None:
    with pytest.raises(TypeError, match="cannot load a tokenizer from"):
        registry.load(source)


@pytest.mark.parametrize(
    "source",
    [
        *("toktier-maxi", "no/such/file.json", "/no/such/folder", "tokenizer.json", "https://example.org/a/b"),
        *("~nobody-of-this-name/x", "x" * 5_000, '{"model": {}}', "a\0b", pathlib.Path("/no/such/path")),
    ],
    ids=lambda source: str(source)[:30].replace("\0", "NUL"),
)
def test_what_leads_nowhere_is_unknown(registry: Registry, source: str | pathlib.Path) -> None:
    with pytest.raises(UnknownTokenizer) as error:
        registry.load(source)
    assert str(source)[:20].replace("\0", r"\x00") in str(error.value)
    assert isinstance(error.value, LookupError)


def test_a_folder_without_a_tokenizer_is_unknown(tmp_path: pathlib.Path, registry: Registry) -> None:
    (tmp_path / "tokenizer.json").mkdir()
    for folder in (tmp_path, tmp_path / "tokenizer.json"):
        with pytest.raises(UnknownTokenizer, match=r"has no tokenizer\.json"):
            registry.load(folder)


def test_without_huggingface_hub_the_message_says_what_to_install(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(UnknownTokenizer, match=r"'owner/name'.*pip install huggingface_hub"):
        registry.load("owner/name")
    assert registry.load("toktier-mini").family.supported, "for this it is not needed"


# The hub, from a cache on this machine


def hub(folder: pathlib.Path, id: str, commit: str, files: dict[str, str]) -> None:
    """A repository as huggingface_hub keeps it after a download."""
    repository = folder / "hub" / f"models--{id.replace('/', '--')}"
    snapshot = repository / "snapshots" / commit
    snapshot.mkdir(parents=True)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(commit)
    for name, text in files.items():
        (snapshot / name).write_text(text, encoding="utf-8")


def offline(folder: pathlib.Path, code: str) -> Any:
    """Runs code in a process that has the hub's cache in this folder and no network."""
    environment = os.environ | {"HF_HOME": str(folder), "HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        environment.pop(name, None)
    registry = f"registry = toktier.Registry({str(folder / 'cache')!r})"
    script = "\n".join(["import json, toktier", registry, code, "print(json.dumps(result))"])
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def test_a_repository_of_the_hub_loads_with_its_configuration(tmp_path: pathlib.Path) -> None:
    pytest.importorskip("huggingface_hub")
    files = {
        "tokenizer.json": zoo.build("gpt4").to_str(),
        "tokenizer_config.json": json.dumps({"additional_special_tokens": ["<straße>"]}),
    }
    hub(tmp_path, "owner/some.name", "0123456789abcdef0123456789abcdef01234567", files)
    code = f"tok = registry.load('owner/some.name')\nresult = tok.encode({TEXT + '<straße>'!r}).tolist()"
    expected = tokenizers.Tokenizer.from_str(files["tokenizer.json"])
    expected.add_special_tokens(["<straße>"])
    assert offline(tmp_path, code) == material.reference_of(expected)(TEXT + "<straße>")


def test_what_the_hub_cannot_give_is_unknown(tmp_path: pathlib.Path) -> None:
    pytest.importorskip("huggingface_hub")
    hub(tmp_path, "owner/empty", "0123456789abcdef0123456789abcdef01234567", {"README.md": "no tokenizer"})
    hub(tmp_path, "owner/broken", "0123456789abcdef0123456789abcdef01234567", {"tokenizer.json": "{"})
    code = """
result = []
for source in ("owner/missing", "owner/empty", "owner/broken"):
    try:
        registry.load(source)
    except toktier.ToktierError as error:
        result.append([type(error).__name__, str(error)])
"""
    (missing, why), (empty, what), (broken, where) = offline(tmp_path, code)
    assert (missing, empty, broken) == ("UnknownTokenizer", "UnknownTokenizer", "InvalidDefinition")
    assert "'owner/missing'" in why
    assert "the hub cannot be reached" in why
    assert "no tokenizer.json" in what
    assert "tokenizer.json: not JSON" in where
