"""What is known about a tokenizer, for its user."""

from __future__ import annotations

from attrs import frozen

from toktier.families.family import Family


@frozen
class Report:
    """What toktier knows about a tokenizer; ``str()`` of it is for people.

    Made by :meth:`Tokenizer.report`.

    Attributes:
        digest: The family's identity, SHA-256 of the canonical definition, 64 hexadecimal digits.
        supported: Whether certified cuts could be derived.
        reason: If not, the first thing in the definition that is not understood.
        stages: The pipeline, one line a stage.
        atoms: The number of character classes that the relation tells apart.
        sync_pairs: The number of their pairs that are certified cuts.
        auto: The engine that ``"auto"`` is: the first of the admitted ones.
        engines: All engines by name, fastest first, each with the evidence or with why it does not serve.

    Example:
        >>> import toktier
        >>> report = toktier.load("toktier-mini").report()
        >>> report.supported, report.atoms, list(report.engines)
        (True, 38, ['gpu', 'gigatoken', 'tiktoken', 'memo', 'reference'])
        >>> print(report)
        digest     ...
        supported  yes
        stage      pre-tokenizer Split(...)
        ...
    """

    digest: str
    supported: bool
    reason: str | None
    stages: tuple[str, ...]
    atoms: int
    sync_pairs: int
    auto: str
    engines: dict[str, str]

    @classmethod
    def of(cls, family: Family, engines: dict[str, str], auto: str) -> Report:
        """The report of a family and the engines that serve it."""
        facts = family.digest, family.supported, family.reason, family.definition.stages, family.atoms
        return cls(*facts, family.sync_pairs, auto, engines)

    def __str__(self) -> str:
        lines = [f"digest     {self.digest}"]
        lines += [f"supported  {'yes' if self.supported else f'no: {self.reason}'}"]
        lines += [f"stage      {stage}" for stage in self.stages]
        lines += [f"relation   {self.atoms} atoms, {self.sync_pairs} pairs are certified cuts"]
        lines += [f"auto       {self.auto}"]
        lines += [f"engine     {name}: {evidence}" for name, evidence in self.engines.items()]
        return "\n".join(lines)
