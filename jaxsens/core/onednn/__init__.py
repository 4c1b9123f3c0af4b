"""Convolutions by oneDNN, the library of kernels for CPUs that PyTorch uses too.

XLA's own convolutions of a CPU take longer, and what the gradient of one becomes in a scanned epoch
takes several times as long. Two packages make it work (the extra `cpu`, Linux on x86-64):
onednn-cpu-gomp, which is the library, and llvmlite, which compiles the few lines that XLA calls it
by. Without them nothing here is used.
"""

from jaxsens.core.onednn.convolutions import (
    ConvolutionShape,
    forward,
    input_gradient,
    kernel_gradient,
)
from jaxsens.core.onednn.library import is_available, version

__all__ = [
    "ConvolutionShape",
    "forward",
    "input_gradient",
    "is_available",
    "kernel_gradient",
    "version",
]
