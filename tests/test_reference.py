"""``docs/reference.md`` shows all that is public, and every docstring there says all that a caller needs to know."""

from __future__ import annotations

import ast
import builtins
import enum
import inspect
import pathlib
import re
from collections.abc import Callable, Iterator

import attrs
import numpy as np
import pytest

import toktier
from tests.documented import Documented, attributes_of, full_name, members, of_class, resolved, shown
from toktier.engines.base import Ids

ROOT = pathlib.Path(__file__).parents[1]

PAGE = (ROOT / "docs/reference.md").read_text(encoding="utf-8")

MODULES = ("toktier", "toktier.chat", "toktier.view")
"""The modules that say what is public in them."""

INSIDE = ("theory.md", "extending.md")
"""Pages about how it is made, for who changes it."""

USERS = [ROOT / "README.md", *ROOT.glob("docs/*.md"), *ROOT.glob("examples/*.py")]

IMPORT = re.compile(r"^(?:>>> )?from (toktier[\w.]*) import ([\w, ]+)", re.MULTILINE)

NOT_PUBLIC = {
    "toktier.families.formats.patterns.PATTERNS": "the page on formats checks its own table",
    "toktier.families.mini": "stands for a file that a reader has",
    "toktier.replay.PROMPT": "belongs to the recorded transcripts of the examples",
    "toktier.replay.read_transcripts": "reads the recorded transcripts of the examples",
}
"""What pages and examples take from the package although it is not public, and why."""

WITHOUT_EXAMPLE = {
    "toktier.errors.SessionTorn": "comes from a signal between two instructions",
    "toktier.integrations.sglang.register": "needs SGLang",
    "toktier.integrations.vllm.TokenizerMode": "needs vLLM",
    "toktier.integrations.vllm.TokenizerMode.from_pretrained": "needs vLLM",
    "toktier.integrations.vllm.register": "needs vLLM",
}
"""What has no example that runs, and why."""

NOUN = re.compile(r"(The|A|An|All|Whether|What|Which|How|Why|Where)\b")
"""How a first sentence begins that says what is returned. One that begins with a verb says what is done."""

ARRAY = re.compile(r"(npt\.NDArray|Ids|Table)\b")
"""Annotations of arrays."""


OBJECTS = list(shown(PAGE))

NAMES = {it.name for it in OBJECTS}


# What a docstring must have. Each of these says what is missing.


def first_sentence(it: Documented) -> Iterator[str]:
    described = inspect.isroutine(it.value) or inspect.isclass(it.value) or inspect.ismodule(it.value)
    if described and not re.match(r"[\w`].*[.:]", it.docstring.split("\n\n")[0], re.DOTALL):
        yield "begins with no sentence"


def arguments(it: Documented) -> Iterator[str]:
    made_by_caller = inspect.isclass(it.value) and "Args:" in it.docstring
    if not it.is_callable and not made_by_caller:
        if inspect.isclass(it.value) and not is_data(it.value) and "Made by " not in it.docstring:
            yield "does not say how it is made"
        return
    parameters = [name for name in inspect.signature(it.value).parameters if name not in ("self", "cls")]
    known = it.like().entries("Args")
    yield from (f"says nothing of {name}=" for name in parameters if name not in known)
    yield from (f"says something of {name}=, which it does not take" for name in known if name not in parameters)


def is_data(kind: type) -> bool:
    """Whether its attributes say how it is made, or nobody makes it."""
    is_made = "__init__" in vars(kind) and not getattr(kind, "_is_protocol", False)
    return attrs.has(kind) or issubclass(kind, (dict, enum.Enum, BaseException)) or not is_made


def attributes(it: Documented) -> Iterator[str]:
    if inspect.isclass(it.value):
        known = it.entries("Attributes")
        yield from (f"says nothing of .{name}" for name in attributes_of(it.value) if name not in known)


def result(it: Documented) -> Iterator[str]:
    if not inspect.isfunction(it.value):
        return
    returns = inspect.signature(it.value).return_annotation
    if returns in ("None", inspect.Signature.empty):
        return
    like = it.like()
    words = like.section("Returns")
    if not words and not NOUN.match(like.docstring):
        yield "does not say what it returns"
    words += like.docstring.split("\n\n")[0]
    if ARRAY.match(returns) and not re.search(r"(uint|int|bool)\S*,.* shape \(", words, re.DOTALL):
        yield "does not say of which type and shape the array is"


def errors(it: Documented) -> Iterator[str]:
    if not inspect.isroutine(it.value) and not inspect.isclass(it.value):
        return
    raised = [node.exc for node in ast.walk(it.tree()) if isinstance(node, ast.Raise)]
    names = dict.fromkeys(ast.unparse(call.func) for call in raised if isinstance(call, ast.Call))
    known = it.like().entries("Raises")
    yield from (f"does not say that it raises {name}" for name in names if name not in known)
    for name in known:
        kind = getattr(toktier.errors, name, getattr(builtins, name, None))
        if not inspect.isclass(kind) or not issubclass(kind, Exception):
            yield f"says that it raises {name}, which is no error"


def example(it: Documented) -> Iterator[str]:
    if (it.is_callable or inspect.isclass(it.value)) and not it.name.endswith("__"):
        if ">>> " not in it.section("Example"):
            yield "has no example"
        if "+SKIP" in it.docstring:
            yield "has an example that does not run"


CHECKS = (first_sentence, arguments, attributes, result, errors, example)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: str(check.__name__))
def test_a_docstring_says_all_that_a_caller_needs(check: Callable[[Documented], Iterator[str]]) -> None:
    excused = WITHOUT_EXAMPLE if check is example else {}
    missing = [f"{it.name} {what}" for it in OBJECTS for what in check(it) if it.name not in excused]
    assert not missing, "\n".join([f"{len(missing)} things are missing:", *missing])


def test_what_has_no_example_is_on_the_page_and_has_none() -> None:
    assert {it.name for it in OBJECTS if any(example(it))} == {*WITHOUT_EXAMPLE}


# What is on the page


@pytest.mark.parametrize("module", MODULES)
def test_every_name_that_a_module_gives_is_on_the_page(module: str) -> None:
    given = {full_name(getattr(resolved(module), name)) for name in resolved(module).__all__}
    assert given - NAMES == set()


def test_every_error_is_on_the_page() -> None:
    defined = {full_name(value) for value in vars(toktier.errors).values() if inspect.isclass(value)}
    assert defined - NAMES == set()


def test_what_pages_and_examples_import_is_on_the_page() -> None:
    imported = {
        f"{module}.{name}"
        for file in USERS
        if file.name not in INSIDE
        for module, names in IMPORT.findall(file.read_text(encoding="utf-8"))
        for name in names.replace(" ", "").split(",")
    }
    public = {id(it.value) for it in OBJECTS}
    assert {name for name in imported if name not in NAMES and id(resolved(name)) not in public} == {*NOT_PUBLIC}


def test_nothing_is_on_the_page_twice() -> None:
    names = [it.name for it in OBJECTS]
    assert sorted(names) == sorted({*names})


def test_a_name_on_the_page_that_is_nothing_is_noticed() -> None:
    with pytest.raises(AttributeError, match="Tokeniser"):
        list(shown(".. autoclass:: toktier.Tokeniser\n"))
    with pytest.raises(LookupError, match="tocktier"):
        list(shown(".. currentmodule:: tocktier\n\n.. autofunction:: load\n"))


def test_members_are_those_that_the_page_asks_for() -> None:
    def names(options: str) -> list[str]:
        page = f".. currentmodule:: toktier\n\n.. autoclass:: Patch()\n{options}\n"
        return [it.name.removeprefix("toktier.patch.") for it in shown(page)]

    assert names("") == ["Patch"]
    assert names("   :members:\n") == ["Patch", "Patch.apply"]
    assert names("   :members:\n   :exclude-members: apply\n") == ["Patch"]
    assert names("   :special-members: __repr__\n") == ["Patch", "Patch.__repr__"]
    module, register = shown(".. automodule:: toktier.metrics\n   :members: register\n")
    assert (module.name, register.name) == ("toktier.metrics", "toktier.metrics.register")


# Each check notices a docstring that is not as it should be.


def bad() -> type:
    # In a function, where nothing looks for doctests.
    class Bad:
        """."""

        def __init__(self, size: int) -> None:
            self.size = size

        def wrong(self, text: str) -> Ids:
            """Counts.

            Args:
                words: Nothing.

            Raises:
                Nothing: Never.

            Example:
                >>> 1  # doctest: +SKIP
            """
            if not text:
                raise ValueError("no text")
            return np.zeros(len(text), np.uint32)

        def right(self, text: str) -> Ids:
            """The ids of a text.

            Args:
                text: A text.

            Returns:
                Zeros, uint32, shape (characters,).

            Raises:
                ValueError: It is empty.

            Example:
                >>> 1
                1
            """
            return self.wrong(text) if text else self.like(text)

        def like(self, text: str) -> Ids:
            """The same as :meth:`right`."""
            raise ValueError(text)

        def unlike(self, text: str, size: int) -> Ids:
            """The same as :meth:`right`."""
            raise TypeError(text * size)

    return Bad


BAD = {it.name.rpartition(".")[2]: it for it in of_class(bad(), members(bad()))}

NO_EXAMPLE = ["has no example"]


@pytest.mark.parametrize(
    ("name", "complaints"),
    [
        ("Bad", ["begins with no sentence", "does not say how it is made", "says nothing of .size", *NO_EXAMPLE]),
        (
            "wrong",
            [
                "says nothing of text=",
                "says something of words=, which it does not take",
                "does not say what it returns",
                "does not say of which type and shape the array is",
                "does not say that it raises ValueError",
                "says that it raises Nothing, which is no error",
                "has an example that does not run",
            ],
        ),
        ("right", []),
        ("like", NO_EXAMPLE),
        ("unlike", ["says nothing of size=", "does not say that it raises TypeError", *NO_EXAMPLE]),
    ],
)
def test_a_bad_docstring_is_noticed(name: str, complaints: list[str]) -> None:
    assert [complaint for check in CHECKS for complaint in check(BAD[name])] == complaints
