"""The Pareto front of a run: candidates already paid for, none of which is worse than another in every way.

In what counts: Err_for, Acc_mem, and the entropy of answers to forgotten images. With it, another trade-off can be
picked after a run without asking the model once more.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from unsee.answers.metrics import harmonic_mean
from unsee.errors import InputError
from unsee.types import Candidate, Doubles, Floats, Scores, TradeOff

ENTROPY_DIGITS = 2  # of an entropy: finer differences are noise, and each would keep another candidate
AIMS = ("acc_mem", "err_for", "entropy")


def update(front: Sequence[Candidate], new: Candidate) -> tuple[Candidate, ...] | None:
    """The front with a new candidate and without those it dominates; None if it does not belong there."""
    mine = _merits(new)
    theirs = [_merits(old) for old in front]
    if any(_at_least(old, mine) for old in theirs):
        return None
    return (*(old for old, merits in zip(front, theirs, strict=True) if not _at_least(mine, merits)), new)


def offer(
    front: Sequence[Candidate],
    number: int,
    losses: Doubles,
    valid: Mapping[int, Scores],
    trade_offs: Mapping[int, TradeOff],
    contexts: Floats,
) -> tuple[tuple[Candidate, ...], tuple[Candidate, ...]]:
    """The front after a generation, and which candidates entered it, also those that a later one drove out."""
    now, entered = tuple(front), []
    for i in sorted(set(valid) & set(trade_offs)):
        new = Candidate(number, i, float(losses[i]), valid[i], trade_offs[i], contexts[i].copy())
        changed = update(now, new)
        if changed is not None:
            now = changed
            entered.append(new)
    return now, tuple(entered)


def front_of(candidates: Iterable[Candidate]) -> tuple[Candidate, ...]:
    """The front of candidates in the order in which they were found."""
    front: tuple[Candidate, ...] = ()
    for new in candidates:
        front = update(front, new) or front
    return front


def pick(front: Sequence[Candidate], **wanted: float) -> Candidate:
    """The candidate that forgets most among those with at least this acc_mem, err_for or entropy.

    With err_for or entropy alone, the one that keeps most. Of equals, the one with the lower loss.
    """
    for name, value in wanted.items():
        if name not in AIMS:
            raise InputError(f"a trade-off is picked by {', '.join(AIMS)}, not {name!r}")
        if not 0 <= value <= 1:
            raise InputError(f"{name} is a share between 0 and 1, not {value}")
    if not wanted:
        raise InputError(f"say what to pick by: {', '.join(AIMS)}")
    good = [c for c in front if all(_value(c, name) >= value - 1e-9 for name, value in wanted.items())]
    if not good:
        best = ", ".join(f"{name} up to {max((_value(c, name) for c in front), default=0):.3f}" for name in wanted)
        raise InputError(f"no candidate of this run has {_words(wanted)}; it has {best}, not always together")
    if "acc_mem" in wanted:
        return max(good, key=lambda c: (c.trade_off.err_for, round(c.trade_off.entropy, ENTROPY_DIGITS), -c.loss))
    return max(good, key=lambda c: (c.trade_off.acc_mem, round(c.trade_off.entropy, ENTROPY_DIGITS), -c.loss))


def flattest(front: Sequence[Candidate], slack: float) -> Candidate:
    """The candidate whose answers to forgotten images are least informative, its H within `slack` of the best.

    Nothing is lost by looking at the front alone: what beats a candidate in all that counts has no lower H.
    """
    best = max(_h(c) for c in front)
    return max((c for c in front if _h(c) >= best - slack), key=lambda c: (c.trade_off.entropy, _h(c)))


def _h(candidate: Candidate) -> float:
    return harmonic_mean(candidate.trade_off.err_for, candidate.trade_off.acc_mem)


def _value(candidate: Candidate, name: str) -> float:
    return float(getattr(candidate.trade_off, name))


def _words(wanted: Mapping[str, float]) -> str:
    return " and ".join(f"{name} of at least {value:g}" for name, value in wanted.items())


def _merits(c: Candidate) -> tuple[float, float, float]:
    t = c.trade_off
    return t.err_for, t.acc_mem, round(t.entropy * 10**ENTROPY_DIGITS) / 10**ENTROPY_DIGITS


def _at_least(a: tuple[float, float, float], b: tuple[float, float, float]) -> bool:
    return a[0] >= b[0] and a[1] >= b[1] and a[2] >= b[2]
