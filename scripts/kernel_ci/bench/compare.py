"""The statistics of a comparison. Pure.

Times on a shared machine drift, jump and have long tails, so nothing here assumes a
distribution:

* Two builds are timed in turn, in the order A B B A. Each pair of neighbours gives one ratio.
  A drift moves that of A B up and that of B A down, and cancels out; as each pair is short,
  most escape what disturbs the machine now and then.
* A round is a pair of fresh processes, as where a process's memory happens to lie makes a
  difference that no number of repetitions inside it averages out (Kalibera and Jones,
  "Rigorous Benchmarking in Reasonable Time", ISMM 2013). The median of its pairs stands
  for a round.
* The interval is that of the median over rounds by order statistics (Conover, "Practical
  Nonparametric Statistics", chapter 3.2): of n independent values, the k-th from either
  end enclose the median with probability 1 - 2 P(Binomial(n, 1/2) < k).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median

from kernel_ci.documents import Model

#: The least confidence of an interval. Ten rounds give 97.9 %, without the lowest and the
#: highest one: a single disturbed round decides nothing.
CONFIDENCE = 0.95


class Ratio(Model):
    """How many times as long one build takes as another.

    Attributes:
        median: The median over rounds.
        low: Lower end of its confidence interval.
        high: Upper end of its confidence interval.
        confidence: The probability with which such an interval holds the true median.
        rounds: The number of rounds.
    """

    median: float
    low: float
    high: float
    confidence: float
    rounds: int

    def slower_than(self, limit: float) -> bool:
        """Tell whether the whole interval lies above a limit."""
        return self.low > limit


def pair_ratios(a1: float, b1: float, b2: float, a2: float) -> tuple[float, float]:
    """Return B's time over A's of the pairs of one A B B A block; all in seconds."""
    return b1 / a1, b2 / a2


def compare(rounds: Sequence[Sequence[float]]) -> Ratio:
    """Return the ratio, with its confidence interval, of each round's pairs.

    Raises:
        ValueError: There are too few rounds for `CONFIDENCE`.
    """
    values = sorted(median(pairs) for pairs in rounds)
    skipped, confidence = _skipped(len(values))
    return Ratio(
        median=median(values),
        low=values[skipped],
        high=values[-1 - skipped],
        confidence=confidence,
        rounds=len(values),
    )


def _skipped(count: int) -> tuple[int, float]:
    """Return how many values to leave out at either end, and the confidence that this gives."""
    found = None
    for skipped in range((count + 1) // 2):
        outside = 2 * sum(math.comb(count, k) for k in range(skipped + 1)) / 2**count
        if 1 - outside < CONFIDENCE:
            break
        found = skipped, 1 - outside
    if found is None:
        raise ValueError(f"{count} rounds are too few for a confidence of {CONFIDENCE}")
    return found
