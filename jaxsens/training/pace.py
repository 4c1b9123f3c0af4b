"""How many steps a call of a device may have, so that it ends within seconds.

A process can be stopped, and can save its state, only between two calls. The first call has one
step, because nobody knows how long it takes; later ones have as many as the one before lets expect
to fit. Neither a loss nor a weight depends on where training is cut.
"""

from jaxsens.core import runtime

#: About how long a call may take.
SECONDS_PER_CALL = 3.0

#: A call has at most so many times as many steps as the one before: compiling and noise deceive.
_GROWTH = 16


class Pace:
    """The number of steps of the next call, the same on every process.

    >>> pace = Pace()
    >>> pace.num_steps
    1
    >>> pace.took(1, 0.01)
    >>> pace.num_steps
    16
    >>> pace.took(16, 6.0)
    >>> pace.num_steps
    8
    """

    def __init__(self) -> None:
        self.num_steps = 1

    def took(self, num: int, seconds: float) -> None:
        """A call of `num` steps took so long here; every process must say so of its own."""
        slowest = max(runtime.largest_of_hosts(seconds), 1e-6)
        fitting = int(num * SECONDS_PER_CALL / slowest)
        self.num_steps = min(max(1, fitting), _GROWTH * self.num_steps)
