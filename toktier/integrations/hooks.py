"""What the hooks of servers have in common."""

from __future__ import annotations

import logging
from typing import Any

logger = logging.getLogger(__name__)


def with_reuse(tokenizer: Any) -> Any:
    """A server's tokenizer with reuse; as it is, with a warning, if it is none that can be wrapped.

    Args:
        tokenizer: What the server has loaded.
    """
    from toktier.integrations.transformers import wrap

    try:
        return wrap(tokenizer)
    except TypeError as error:
        logger.warning("nothing is reused: %s", error)
        return tokenizer
