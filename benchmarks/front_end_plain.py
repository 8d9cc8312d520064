"""``examples/front_end.py`` with ``tokenizers`` in the place of its store: ``benchmarks.front_end`` measures both."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Iterable, Sequence
from typing import Any, cast

import tokenizers

import toktier
from examples.front_end import create_app, serve
from toktier import Patch, SessionStore
from toktier.engines.base import Ids


class Listed(list[int]):
    """Ids as ``tokenizers`` gives them, which need not become an array and a list again."""

    def tolist(self) -> list[int]:
        """Itself."""
        return self


class PlainStore(SessionStore):
    """Stores nothing: every text is encoded as a whole, by another thread so that the event loop stays free."""

    def __init__(self, tok: toktier.Tokenizer, tokenizer: tokenizers.Tokenizer) -> None:
        super().__init__(tok, engine="reference")
        self._library = tokenizer

    async def encode_async(
        self,
        text: str,
        *,
        session: str | None = None,
        salt: str = "",
        untrusted: Iterable[Sequence[int]] = (),
        patch: bool = False,
    ) -> Any:
        """The ids of a text."""
        encoding = await asyncio.to_thread(self._library.encode, text, add_special_tokens=False)
        ids = cast(Ids, Listed(encoding.ids))
        return (ids, Patch(0, 0, ids, None)) if patch else ids


def main() -> None:
    """Serves until it is told to stop."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--tokenizer", required=True)
    parser.add_argument("--port", type=int, required=True)
    options = parser.parse_args()
    tok = toktier.load(options.tokenizer)
    store = PlainStore(tok, tokenizers.Tokenizer.from_file(options.tokenizer))
    serve(create_app(store, sources=[tok]), "127.0.0.1", options.port)


if __name__ == "__main__":
    main()
