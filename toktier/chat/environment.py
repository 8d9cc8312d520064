"""Chat templates as Jinja programs, in a sandbox: what ``transformers`` gives them, and nothing else.

One program renders as that library does. A second one, made of the same syntax tree, renders with provenance: its
constants are trusted texts, and wherever Jinja itself puts strings together, marks are kept.
"""

from __future__ import annotations

import functools
import json
import string
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, NoReturn

import jinja2
from jinja2 import nodes, pass_eval_context
from jinja2.exceptions import SecurityError, TemplateError, TemplateSyntaxError
from jinja2.ext import Extension, loopcontrols
from jinja2.filters import FILTERS, sync_do_join
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment, SandboxedFormatter
from jinja2.utils import Namespace
from jinja2.visitor import NodeTransformer

from toktier.chat.provenance import MarkedText, is_trusted, joined
from toktier.errors import InvalidTemplate, MissingPackage, TemplateFailure

OLDEST = (3, 1, 6)
"""Before that, the sandbox of Jinja could be left."""

TOGETHER = "toktier_together"
"""The filter that stands for ``~``."""


class Program:
    """A chat template that is compiled once. Safe to share between threads.

    Args:
        source: What the template says.
        place: What errors call it.

    Raises:
        MissingPackage: Jinja is too old.
        InvalidTemplate: It is no template.
    """

    def __init__(self, source: str, place: str) -> None:
        self._source, self._place = source, place
        self._plain = self._compiled(_Plain())

    def render(self, context: Mapping[str, Any]) -> str:
        """The text for some variables.

        Raises:
            TemplateFailure: There is none.
        """
        return self._rendered(self._plain, context)

    def render_marked(self, context: Mapping[str, Any]) -> MarkedText:
        """The text for variables that are marked.

        Raises:
            InvalidTemplate: The template switches escaping on.
            TemplateFailure: There is none.
        """
        text = self._rendered(self._marked, context)
        return text if isinstance(text, MarkedText) else MarkedText(text)

    @functools.cached_property
    def _marked(self) -> jinja2.Template:
        return self._compiled(_Marked(), _Constants())

    def _compiled(self, environment: jinja2.Environment, constants: _Constants | None = None) -> jinja2.Template:
        try:
            tree = environment.parse(self._source)
            if constants is not None:
                for node in tree.find_all((nodes.EvalContextModifier, nodes.ScopedEvalContextModifier)):
                    raise InvalidTemplate(
                        f"{self._place}, line {node.lineno}: it switches escaping on, after which nobody knows which"
                        " characters are whose: take {% autoescape %} out, or use no untrusted text"
                    )
                tree = constants.visit(tree)
                vars(environment).update(constants.texts())
            code = environment.compile(tree, filename=self._place)
        except TemplateSyntaxError as error:
            raise InvalidTemplate(f"{self._place}, line {error.lineno}: {error.message}") from None
        return environment.template_class.from_code(environment, code, environment.make_globals(None))

    def _rendered(self, template: jinja2.Template, context: Mapping[str, Any]) -> str:
        try:
            return template.render(context)
        except Exception as error:
            why = str(error) if isinstance(error, TemplateError) else f"{type(error).__name__}: {error}"
            raise TemplateFailure(f"{self._place}{self._line(error)}: {why}") from error

    def _line(self, error: BaseException) -> str:
        """Which line of the template an error comes from."""
        line, frames = None, error.__traceback__
        while frames is not None:
            if frames.tb_frame.f_code.co_filename == self._place:
                line = frames.tb_lineno
            frames = frames.tb_next
        return "" if line is None else f", line {line}"


class _Generation(Extension):
    """``{% generation %}`` marks what a model said, for training: here it is rendered like anything else."""

    tags = {"generation"}  # noqa: RUF012  # as the class declares it

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("as_it_is"), [], [], body).set_lineno(line)

    def as_it_is(self, caller: Callable[[], str]) -> str:
        return caller()


class _Namespace(Namespace):
    """``namespace()``, which keeps nothing under names that are internal to Python."""

    def __init__(*args: Any, **kwargs: Any) -> None:  # any keyword is a name, ``self`` as well
        self, *given = args
        values = dict(*given, **kwargs)
        for name in values:
            _check_name(name)
        Namespace.__init__(self, values)

    def __setitem__(self, name: str, value: Any) -> None:
        _check_name(name)
        super().__setitem__(name, value)


def _check_name(name: object) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise SecurityError(f"a namespace cannot have an attribute {name!r}: names must not begin with an underscore")


class _Dictionary:
    """``dict()`` and ``dict.fromkeys()``, and nothing else of the class."""

    def __call__(self, *args: Any, **kwargs: Any) -> dict[Any, Any]:
        return dict(*args, **kwargs)

    def fromkeys(self, keys: Iterable[Any], value: Any = None) -> dict[Any, Any]:
        return dict.fromkeys(keys, value)


def _raise_exception(message: object) -> NoReturn:
    raise TemplateError(str(message))


def _strftime_now(how: str) -> str:
    return datetime.now().strftime(how)


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON as models read it: Jinja's own filter escapes it for HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


class _Plain(ImmutableSandboxedEnvironment):
    def __init__(self) -> None:
        if tuple(int(part) for part in jinja2.__version__.split(".")[:3] if part.isdigit()) < OLDEST:
            raise MissingPackage(f"chat templates need jinja2 3.1.6, not {jinja2.__version__}: pip install -U jinja2")
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols])
        self.filters["tojson"] = _tojson
        self.globals |= {
            "raise_exception": _raise_exception,
            "strftime_now": _strftime_now,
            "dict": _Dictionary(),
            "namespace": _Namespace,
        }


class _Marked(_Plain):
    """The same for texts that know which of their characters are untrusted."""

    concat = staticmethod(joined)

    def __init__(self) -> None:
        super().__init__()
        self.filters |= {
            TOGETHER: lambda values: joined(map(str, values)),
            "join": _join,
            "tojson": _tojson_marked,
            "indent": _indent_marked,
        }

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        method = super().wrap_str_format(value)
        return None if method is None else functools.partial(_formatted, self, value.__self__, method)


@pass_eval_context
def _join(eval_ctx: nodes.EvalContext, value: Iterable[Any], d: str = "", attribute: str | int | None = None) -> str:
    return sync_do_join(eval_ctx, value, MarkedText("", ()) if d == "" else d, attribute)


def _tojson_marked(value: Any, *args: Any, **kwargs: Any) -> str:
    """Trusted if all that is in a value is, and the separators too."""
    said = [value, *(how for how in (*args, *kwargs.values()) if not isinstance(how, int))]
    return MarkedText(_tojson(value, *args, **kwargs), () if is_trusted(said) else None)


def _indent_marked(s: str, width: int | str = 4, first: bool = False, blank: bool = False) -> str:
    """A line at a time, each with its marks."""
    if not isinstance(s, MarkedText):
        return FILTERS["indent"](s, width, first, blank)  # type: ignore[no-any-return]
    margin = width if isinstance(width, str) else MarkedText(" " * width, ())
    head, *lines = (s + "\n").splitlines()
    pieces = [margin, head] if first else [head]
    for line in lines:
        pieces += MarkedText("\n", ()), margin if line or blank else "", line
    return joined(pieces)


def _formatted(environment: _Marked, text: str, method: Callable[..., str], *args: Any, **kwargs: Any) -> str:
    """``text.format()``, a field at a time."""
    whole = method(*args, **kwargs)
    if not isinstance(text, MarkedText) or not is_trusted(text) or method.__name__ != "format":
        return whole
    pieces, automatic = list[str](), 0
    formatter = SandboxedFormatter(environment)
    for literal, name, how, conversion in string.Formatter().parse(text):
        pieces.append(MarkedText(literal, ()))
        if name is None:
            continue
        if "{" in (how or ""):
            return whole  # a field that says how another one is written
        if not name or name[0] in ".[":
            name, automatic = f"{automatic}{name}", automatic + 1  # noqa: PLW2901
        value = formatter.get_field(name, args, kwargs)[0]
        if how or conversion or not isinstance(value, str):
            value = formatter.vformat(f"{{{name}{f'!{conversion}' if conversion else ''}:{how}}}", args, kwargs)
        pieces.append(value)
    tracked = joined(pieces)
    # A format that is read otherwise here than by Jinja would show.
    return tracked if tracked == whole else whole


class _Constants(NodeTransformer):
    """Puts attributes of the environment, which are trusted texts, in the place of all that a template says itself."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}

    def texts(self) -> dict[str, MarkedText]:
        """The attributes."""
        return {name: MarkedText(text, ()) for text, name in self._names.items()}

    def visit_Const(self, node: nodes.Const) -> nodes.Expr:  # noqa: N802
        return self._constant(node.value, node) if isinstance(node.value, str) else node

    def visit_TemplateData(self, node: nodes.TemplateData) -> nodes.Expr:  # noqa: N802
        return self._constant(node.data, node)

    def visit_Output(self, node: nodes.Output) -> nodes.Output:  # noqa: N802
        node.nodes = list(map(_as_shown, node.nodes))
        self.generic_visit(node)
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Expr:  # noqa: N802
        node.nodes = list(map(_as_shown, node.nodes))
        self.generic_visit(node)
        values = nodes.List(node.nodes, lineno=node.lineno, environment=node.environment)
        return nodes.Filter(values, TOGETHER, [], [], None, None, lineno=node.lineno, environment=node.environment)

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Expr:  # noqa: N802
        # The name of a field is looked for, and never shown.
        if isinstance(node.arg, nodes.Const):
            node.node = self.visit(node.node)
            return node
        self.generic_visit(node)
        return node

    def _constant(self, text: str, node: nodes.Expr) -> nodes.Expr:
        name = self._names.setdefault(text, f"toktier_{len(self._names)}")
        return nodes.EnvironmentAttribute(name, lineno=node.lineno, environment=node.environment)


def _as_shown(node: nodes.Expr) -> nodes.Expr:
    """An expression without the filter ``safe``: where it is shown at once, there is nothing that would be escaped."""
    while isinstance(node, nodes.Filter) and node.name == "safe" and node.node is not None:
        node = node.node
    return node
