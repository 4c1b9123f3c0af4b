"""What Hahn and Rofin (arXiv 2402.09963) say, as data; and the criteria of our runs.

The statements are those of the abstract and of the captions. The limits are this project's, fixed
before its runs (the paper gives no other number than "about 1 at n = 30").
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class PaperClaim:
    """A statement of the paper.

    Attributes:
      figure: where it is.
      statement: what it says.
    """

    figure: str
    statement: str

    def __str__(self) -> str:
        return f"{self.statement} ({self.figure})"


H1 = PaperClaim("Figs 1, 5", "PARITY rises with n to about 1 at 30; the others barely increase")
H2 = PaperClaim(
    "Fig. 2", "norm and blow-up trade off; for PARITY the curve shifts outward with n, else not"
)
H3 = PaperClaim("Fig. 3", "sharpness rises where the loss drops, then falls and levels off above 0")
H4 = PaperClaim("Fig. 4", "learned extensions are less sensitive than random ones, and less sharp")
H5 = PaperClaim("Fig. 11", "with a scratchpad the sharpness of PARITY does not grow with n")
H6 = PaperClaim("Section 5", "random transformers have low sensitivity")

#: scaling: rank correlation of n and the sharpness of PARITY.
LEAST_CORRELATION = 0.6
#: scaling: PARITY over MAJORITY from this length on.
LEAST_RATIO, RATIO_FROM = 3.0, 8
#: scaling: by what factor a control may change from the shortest to the longest length.
LARGEST_CHANGE = 2.0
#: scaling: runs that must have learnt at every length.
LEAST_LEARNT = 3
#: scaling at the paper's size: sharpness of PARITY at this length, the others' as a share of it.
PAPER_LENGTH, PAPER_RANGE, PAPER_SHARE = 30, (0.7, 1.3), 0.1
#: dynamics: the loss that ends the drop, and the one that begins it (0.25 is that of a constant).
DROPPED, PLATEAU = 0.01, 0.2
#: dynamics: sharpness at the end of the drop over that on the plateau.
LEAST_RISE = 4.0
#: dynamics: sharpness at the end over its largest.
FINAL_SHARE = (0.4, 1.0)
