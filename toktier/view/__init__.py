"""The tokens of a text, or of a session after each turn, as one page to look at."""

from toktier.view.turns import Recording, Turn, replayed
from toktier.view.writing import page

__all__ = ["Recording", "Turn", "page", "replayed"]
