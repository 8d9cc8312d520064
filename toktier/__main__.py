"""``python -m toktier``: the command line."""

from toktier.cli import main

if __name__ == "__main__":
    main()
