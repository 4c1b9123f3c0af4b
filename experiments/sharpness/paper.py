"""The paper's numbers of the experiment `sharpness`."""

from typing import NamedTuple


class PaperSharpness(NamedTuple):
    """What Table 2 gives of one model, each under the name of its change (see `KINDS`)."""

    l1: float | None = None
    flips: float | None = None


#: Table 2, for ViT-small on CIFAR-10.
TABLE_2 = {
    "vit-small": PaperSharpness(39.166, 0.5346),
    "vit-small-regularise": PaperSharpness(9.025, 0.3982),
}
#: The kinds of change with their names for readers; the first two are the paper's.
KINDS = {"l1": "ShOp", "flips": "ShPred", "squared": "squared change", "loss": "loss increase"}
