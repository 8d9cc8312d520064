"""Objects that a page of the documentation has Sphinx show, each with its docstring, taken apart."""

from __future__ import annotations

import ast
import contextlib
import importlib
import inspect
import re
import textwrap
from collections.abc import Iterable, Iterator
from typing import Any

import attrs

DIRECTIVE = re.compile(
    r"^ *\.\. (?:auto(?P<kind>\w+)|currentmodule):: (?P<name>[\w.]+)[^\n]*\n(?P<options>(?: +:[^\n]+\n)*)",
    re.MULTILINE,
)
"""What the page shows: an object, and which of its members."""

SECTION = re.compile(r"^(Args|Attributes|Returns|Raises|Example):\n((?:(?:    [^\n]*)?\n)+)", re.MULTILINE)

ENTRY = re.compile(r"^    (\w+): ", re.MULTILINE)

LIKE = re.compile(r"\bThe same as :meth:`(\w+)`")
"""In another way to call the same thing: parameters, results and errors are those of another method."""


@attrs.frozen
class Documented:
    """An object that is shown.

    Attributes:
        name: Its module and its name in there.
        value: The object itself; of a property, its getter.
        owner: The class that it is a member of.
        is_property: Whether it is a property.
    """

    name: str
    value: Any
    owner: type | None = None
    is_property: bool = False

    @property
    def docstring(self) -> str:
        return inspect.cleandoc(self.value.__doc__ or "")

    @property
    def is_callable(self) -> bool:
        return inspect.isfunction(self.value) and not self.is_property

    def section(self, title: str) -> str:
        return "".join(text for name, text in SECTION.findall(f"{self.docstring}\n") if name == title)

    def entries(self, title: str) -> list[str]:
        return ENTRY.findall(self.section(title))

    def like(self) -> Documented:
        """What its docstring refers to for all that is the same there; itself, if to nothing."""
        if found := LIKE.search(self.docstring):
            return Documented(found[1], getattr(self.owner, found[1]), self.owner)
        return self

    def tree(self) -> ast.AST:
        """Its own code: of a class, that which makes an object."""
        code: Any = vars(self.value).get("__init__") if inspect.isclass(self.value) else self.value
        if getattr(code, "__module__", None) != self.value.__module__ or attrs.has(self.value):  # nobody has written it
            return ast.Module([], [])
        return ast.parse(textwrap.dedent(inspect.getsource(code)))


def resolved(name: str) -> Any:
    """What a dotted name stands for."""
    names, rest = name.split("."), list[str]()
    while names:
        with contextlib.suppress(ModuleNotFoundError):
            found: Any = importlib.import_module(".".join(names))
            for part in rest:
                found = getattr(found, part)
            return found
        rest.insert(0, names.pop())
    raise LookupError(f"{name} is nothing")


def full_name(value: Any) -> str:
    return value.__name__ if inspect.ismodule(value) else f"{value.__module__}.{value.__qualname__}"


def members(kind: type) -> list[str]:
    """The public methods and properties that a class itself has."""
    return [
        name
        for name, value in vars(kind).items()
        if not name.startswith("_")
        and (inspect.isfunction(value) or isinstance(value, (staticmethod, classmethod, property)))
    ]


def of_class(kind: type, chosen: Iterable[str]) -> Iterator[Documented]:
    yield Documented(full_name(kind), kind)
    for name in chosen:
        value = vars(kind)[name]
        is_property = isinstance(value, property)
        value = value.fget if is_property else getattr(value, "__func__", value)
        yield Documented(f"{full_name(kind)}.{name}", value, kind, is_property)


def of_module(module: Any, chosen: Iterable[str], left_out: Iterable[str]) -> Iterator[Documented]:
    yield Documented(full_name(module), module)
    for name in chosen:
        value = getattr(module, name)
        if inspect.isclass(value):
            yield from of_class(value, [each for each in members(value) if each not in left_out])
        else:
            yield Documented(f"{full_name(module)}.{name}", value)


def shown(page: str) -> Iterator[Documented]:
    """The objects that a page has Sphinx show."""
    module = ""
    for directive in DIRECTIVE.finditer(page):
        kind, name = directive["kind"], directive["name"]
        if kind in (None, "module"):
            module = name
        options = dict(re.findall(r":([\w-]+):([^\n]*)", directive["options"]))
        lists = ("members", "exclude-members", "special-members")
        chosen, left_out, special = (re.findall(r"\w+", options.get(each, "")) for each in lists)
        value = resolved(name if name.startswith("toktier") else f"{module}.{name}")
        if kind == "module":
            yield from of_module(value, chosen, left_out)
        elif inspect.isclass(value):
            everything = members(value) if "members" in options else []
            yield from of_class(value, [each for each in chosen or everything if each not in left_out] + special)
        elif kind is not None:
            yield Documented(full_name(value), value)


def attributes_of(kind: type) -> list[str]:
    """The public attributes that objects of a class have."""
    if issubclass(kind, tuple):
        return [*getattr(kind, "_fields", ())]
    if attrs.has(kind):
        return [field.name for field in attrs.fields(kind) if not field.name.startswith("_")]
    stored = [
        node.attr
        for node in ast.walk(Documented("", kind).tree())
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and ast.unparse(node.value) == "self"
    ]
    return [name for name in dict.fromkeys(stored) if not name.startswith("_")]
