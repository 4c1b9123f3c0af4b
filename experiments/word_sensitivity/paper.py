"""What Bombari and Mondelli (arXiv 2402.02969) claim, as data: the range of each claim.

Ranges were fixed before any claim was computed; that of DRF's growth is our own reading of
"mildly". A claim of W holds if the whole 95 % interval of what was measured lies in its range;
those of G say in `context_claims` what decides. The authors' code gives one run of one sample and
no error bars, so there are no numbers of theirs to compare with but these.
"""

import math

#: A closed range; an end that is infinite is open.
Within = tuple[float, float]

#: W1: S √n over 1 + √(d/k).
CONSTANT: Within = (0.95, 1.05)
#: W2: the exponent of S in n, for RF.
RF_SLOPE: Within = (-0.65, -0.45)
#: W3: the same for DRF of any depth, and how much larger the deepest is than the shallowest.
DRF_SLOPE: Within = (-0.75, -0.45)
DRF_GROWTH: Within = (1.0, 2.0)
#: W4: the exponent for attention, and S at every n.
RAF_SLOPE: Within = (-0.2, math.inf)
RAF_LEVEL: Within = (1.0, math.inf)
#: W5: the exponent for ReLU attention, and softmax over ReLU, at the largest n and at every n.
RELU_SLOPE: Within = (-math.inf, -0.3)
SOFTMAX_OVER_RELU: Within = (2.5, math.inf)
SOFTMAX_ABOVE_RELU: Within = (1.0, math.inf)
#: W6: attention over RF at the largest n.
RAF_OVER_RF: Within = (10.0, math.inf)
#: G1: Err over (2 - γ)² for RF, at every point; and how far the exact inequality may be broken.
RF_ERROR_RATIO: Within = (0.85, math.inf)
EXACT = 1e-6
#: G2: F of RF, at every point.
RF_ALIGNMENT: Within = (0.85, math.inf)
#: G3: Err that counts as 0, and the least share of seeds that reaches it.
SOLVED, LEAST_SOLVED = 0.01, 0.9
#: G4: more than this share of the points is below the curve.
MAJORITY = 0.5

#: A start is stuck if it ends below this share of the best of all starts.
STUCK = 0.5
#: The authors' ascent for attention: learning rate on the RMS change, steps for each word of the
#: text, and the standard deviation of the start around the clean word.
RELEASED_RATE, RELEASED_STEPS, RELEASED_START = 10.0, 50, 0.1


def theory(n: int, d: int, k: int) -> float:
    """S of RF with k units: (1 + √(d/k))/√n, from the largest singular value of a d × k block.

    >>> round(theory(90, 192, 90 * 192), 4), round(theory(150, 192, 150 * 192), 4)
    (0.1165, 0.0883)
    """
    return (1 + math.sqrt(d / k)) / math.sqrt(n)


def curve(gamma: float) -> float:
    """(2 - γ)², 0 from γ = 2 on: the least error of a model that cannot tell the two texts apart.

    >>> curve(0.5), curve(3.0)
    (2.25, 0.0)
    """
    return max(2 - gamma, 0.0) ** 2
