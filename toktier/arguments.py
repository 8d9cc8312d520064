"""What a caller gives to a store, looked at before anything is done with it: an error says what is wrong."""

from __future__ import annotations


def check_limits(max_bytes: object, ttl: object) -> None:
    """Makes sure that these are limits.

    Args:
        max_bytes: A number of bytes.
        ttl: A number of seconds.

    Raises:
        TypeError: One of them is something else.
        ValueError: One of them is not positive.

    Example:
        >>> check_limits(1 << 20, 0)
        Traceback (most recent call last):
            ...
        ValueError: ttl must be positive, not 0
    """
    if not isinstance(max_bytes, int) or isinstance(max_bytes, bool):
        raise TypeError(f"max_bytes must be an int, not {max_bytes!r}")
    if not isinstance(ttl, (int, float)) or isinstance(ttl, bool):
        raise TypeError(f"ttl must be a number of seconds, not {ttl!r}")
    for name, limit in (("max_bytes", max_bytes), ("ttl", ttl)):
        if not limit > 0:
            raise ValueError(f"{name} must be positive, not {limit}")


def check_names(session: object, salt: object) -> None:
    """Makes sure that these say what a session is stored under.

    Args:
        session: Its name; None for a text without one.
        salt: What separates tenants.

    Raises:
        TypeError: One of them is something else.
        ValueError: The name is empty.

    Example:
        >>> check_names(42, "")
        Traceback (most recent call last):
            ...
        TypeError: session must be a str, not int
    """
    if session is not None and not isinstance(session, str):
        raise TypeError(f"session must be a str, not {type(session).__name__}")
    if session == "":
        raise ValueError("the name of a session must not be empty; without one, leave session out")
    if not isinstance(salt, str):
        raise TypeError(f"salt must be a str, not {type(salt).__name__}")
