"""The formulas of these pages as MathML, made when the pages are built: no script, no network, the colours of the page.

They are written in the little of LaTeX that the theory needs. Anything else is an error, so that no page shows a
formula that came out wrong.
"""

from __future__ import annotations

import re
from typing import Any, NoReturn

from sphinx.application import Sphinx
from sphinx.errors import ExtensionError

SYMBOL = re.compile(r"\\mathrm\{([a-z]+)\}|\\,|[A-Za-z]|[0-9]+|[-+=()\[\]:,.']|[{}_]")


def mathml(source: str, *, block: bool = False) -> str:
    r"""A formula as MathML.

    Args:
        source: The formula in LaTeX: letters, numbers, ``+-=()[]:,.'``, subscripts, ``\mathrm{...}`` and ``\,``.
        block: Whether it stands by itself, in the middle of a line.

    Raises:
        ExtensionError: It has something else in it, or its braces do not match.

    Example:
        >>> mathml("R_{k+1}")
        '<math><msub><mi>R</mi><mrow><mi>k</mi><mo>+</mo><mn>1</mn></mrow></msub></math>'
    """
    display = ' display="block"' if block else ""
    return f"<math{display}>{_Formula(source).whole()}</math>"


class _Formula:
    def __init__(self, source: str) -> None:
        self.source, self.symbols = source, list[re.Match[str]]()
        at = 0
        while at < len(source):
            if source[at].isspace():
                at += 1
                continue
            symbol = SYMBOL.match(source, at)
            if symbol is None:
                self.refuse(source[at : at + 10])
            self.symbols.append(symbol)
            at = symbol.end()
        self.symbols.reverse()

    def whole(self) -> str:
        result = self.items()
        if self.symbols:
            self.refuse("}")
        return result

    def items(self) -> str:
        """Everything up to the end or to a brace that closes."""
        found: list[str] = []
        while self.symbols and self.symbols[-1][0] != "}":
            if self.symbols[-1][0] == "_":
                sign = self.symbols.pop()[0]
                if not found or not self.symbols:
                    self.refuse(sign)
                found.append(f"<msub>{found.pop()}{self.item()}</msub>")
            else:
                found.append(self.item())
        return "".join(found)

    def item(self) -> str:
        """A symbol, or what stands between two braces."""
        symbol = self.symbols.pop()
        text = symbol[0]
        if text == "{":
            inner = self.items()
            if not self.symbols:
                self.refuse(text)
            self.symbols.pop()
            return f"<mrow>{inner}</mrow>"
        if symbol[1]:
            return f'<mi mathvariant="normal">{symbol[1]}</mi>'
        if text == r"\,":
            return '<mspace width="0.17em"/>'
        if text.isalpha():
            return f"<mi>{text}</mi>"
        if text.isdecimal():
            return f"<mn>{text}</mn>"
        if text in "_}":
            self.refuse(text)
        return f"<mo>{'′' if text == chr(39) else text}</mo>"

    def refuse(self, what: str) -> NoReturn:
        raise ExtensionError(f"{what!r} in the formula {self.source!r} is not known to docs/mathematics.py")


def _inline(translator: Any, node: Any) -> None:
    translator.body.append(mathml(node.astext()))
    node.clear()  # of its text, which would be written too


def _block(translator: Any, node: Any) -> None:
    # A long one can be moved on a narrow screen.
    translator.body.append(f'<div style="margin: 1rem 0; overflow-x: auto">{mathml(node.astext(), block=True)}</div>\n')
    node.clear()


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    app.add_html_math_renderer("mathml", (_inline, None), (_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
