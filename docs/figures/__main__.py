"""``python -m docs.figures``: draws all figures of the documentation anew."""

from __future__ import annotations

from docs.figures.catalogue import FOLDER, drawn


def main() -> None:
    """Writes each figure, and prints its path."""
    FOLDER.mkdir(exist_ok=True)
    for name, svg in drawn():
        path = FOLDER / name
        path.write_text(svg, encoding="utf-8", newline="\n")
        print(path)


if __name__ == "__main__":
    main()
