"""What is to be measured, and on which text: as much as the text has room for, and nothing on the same text twice."""

from __future__ import annotations

from attrs import evolve, frozen

from toktier.errors import ToktierError


class NotMeasurable(ToktierError, ValueError):
    """There is nothing to measure: a tokenizer without certified cuts, or a text that is too short."""


@frozen
class Appends:
    """Appends of one length.

    Attributes:
        characters: The length.
        in_a_row: How many a session is given one after the other before its ids are looked at.
        share: In how many of the rounds.
    """

    characters: int
    in_a_row: int
    share: float


@frozen
class Plan:
    """What is measured.

    Attributes:
        contexts: Characters that stand in a session before anything is appended, in ascending order.
        rounds: In each of them, everything has its turn that is due.
        appends: What is appended. The first is a turn of a coding agent; the last, one in a row, is also given to the
            engine alone.
        updates: In how many of the rounds there are updates.
        whole: Characters to encode in full at each context, all encodes together; at least three, one a round at most.
    """

    contexts: tuple[int, ...]
    rounds: int
    appends: tuple[Appends, ...] = (Appends(1_400, 60, 1.0), Appends(10_000, 1, 1.0), Appends(100_000, 1, 0.25))
    updates: float = 0.5
    whole: int = 10_000_000

    @property
    def update(self) -> Appends:
        """What an update adds to its context: one turn."""
        return Appends(self.appends[0].characters, 1, self.updates)

    @property
    def each(self) -> int:
        """Characters that are appended to each context, all together."""
        appended = sum(of.characters * of.in_a_row * self.times(of.share) for of in (*self.appends, self.update))
        return appended + self.appends[0].characters

    @property
    def fresh(self) -> int:
        """Characters that are appended to all of them, none of them twice."""
        return len(self.contexts) * self.each

    def times(self, share: float) -> int:
        """The number of rounds that are a share of all: one at least."""
        return max(1, round(share * self.rounds))

    def encodes(self, context: int) -> int:
        """In how many rounds a context is encoded in full."""
        return min(self.rounds, max(3, self.whole // context), 20)

    def is_due(self, number: int, times: int) -> bool:
        """Whether a round has a share in what is done so many times, evenly over all rounds.

        >>> [number for number in range(10) if FULL.is_due(number, 15)]
        [1, 3, 5, 7, 9]
        """
        return number * times // self.rounds < (number + 1) * times // self.rounds

    def fitted(self, length: int) -> Plan:
        """The same for a text of some length: with fewer rounds and without the longest contexts if they do not fit.

        The longest context that does fit takes their place.

        Raises:
            NotMeasurable: Not even the shortest fits.

        >>> FULL.fitted(FULL.contexts[-1] + FULL.fresh) == FULL
        True
        >>> FULL.fitted(3_000_000).contexts
        (10000, 100000, 1000000, 1400000)
        """
        if self.contexts[-1] + self.fresh <= length:
            return self
        plan = self
        while 2 * plan.fresh > length and plan.rounds > 3:
            plan = evolve(plan, rounds=plan.rounds // 2)
        contexts = list(plan.contexts)
        while contexts and contexts[-1] > length - len(contexts) * plan.each:
            contexts.pop()
        if not contexts:
            least = plan.each + plan.contexts[0]
            raise NotMeasurable(
                f"a text of {length:,} characters is too short: it takes {least:,}, for nothing is appended twice"
            )
        room = length - (len(contexts) + 1) * plan.each
        if len(contexts) < len(plan.contexts) and room > 1.25 * contexts[-1]:
            contexts.append(room - room % 10 ** (len(str(room)) - 2))
        return evolve(plan, contexts=tuple(contexts))


FULL = Plan(contexts=(10_000, 100_000, 1_000_000, 4_400_000, 8_000_000), rounds=30)

QUICK = Plan(contexts=(10_000, 100_000, 1_000_000), rounds=12)
"""A first look."""
