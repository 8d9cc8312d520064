"""The sources of the kernels: as one text, and what they declare."""

from __future__ import annotations

import re
from pathlib import Path

FOLDER = Path(__file__).parent / "kernels"
"""Where they are."""

_INCLUDE = re.compile(r'^#include "(.*)"\n', re.MULTILINE)


def whole(name: str = "chain.cuh") -> str:
    r"""A source with everything that it includes in place, each file once.

    Compilers for devices then need no file, and whoever keeps what was compiled sees every change.

    Example:
        >>> "#include" in whole(), whole().count("struct Tables {")
        (False, 1)
    """
    seen: set[str] = set()

    def included(name: str) -> str:
        if name in seen:
            return ""
        seen.add(name)
        text = (FOLDER / name).read_text(encoding="utf-8").replace("#pragma once\n", "")
        return _INCLUDE.sub(lambda found: included(found[1]), text)

    return included(name)


def kernels() -> list[str]:
    """The names of all kernels.

    Example:
        >>> kernels()[:2]
        ['documents_begin', 'mark']
    """
    return re.findall(r"__global__ void (\w+)\(", whole())


def fields(structure: str) -> list[str]:
    """The names of the fields of a structure that is made here, in order.

    Example:
        >>> fields("Tables")[:3]
        ['kind_pages', 'kinds', 'kind_flags']
    """
    body = re.sub("//.*", "", whole()).split(f"struct {structure} {{", 1)[1].split("}", 1)[0]
    return re.findall(r"(\w+);", body)
