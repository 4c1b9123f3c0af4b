"""The side of PyTorch in the suite "worst-case": whole passes of all starts, by autograd, eager."""

import math

import numpy as np
import torch

from benchmarks.frame import Row
from benchmarks.worst_case_cell import Job, timed_row

#: As in `jaxsens.measurement.ascent`.
FIRST_STEP = 0.3


def features(weights: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """softmax(X W Xᵀ/√d) X."""
    logits = (x @ weights) @ x.transpose(1, 2) / math.sqrt(x.shape[-1])
    return torch.softmax(logits, dim=-1) @ x


def climbed(
    x: torch.Tensor, weights: torch.Tensor, starts: torch.Tensor, radius: float, num_steps: int
) -> torch.Tensor:
    """The largest relative change that each start (S, d) of the first word of x (n, d) found."""
    clean = features(weights, x[None])
    size = clean.norm()
    rest = x[1:].expand(len(starts), -1, -1)
    move, best = starts - x[0], torch.zeros(len(starts))
    for t in range(num_steps + 1):
        move.requires_grad_(True)
        words = torch.cat([(x[0] + move)[:, None], rest], dim=1)
        heights = (features(weights, words) - clean).square().sum(dim=(1, 2)) / size**2
        (gradient,) = torch.autograd.grad(heights.sum(), move)
        with torch.no_grad():
            best = torch.maximum(best, heights)
            step = FIRST_STEP * (1 - t / num_steps) * radius
            move = move + step * torch.nn.functional.normalize(gradient, dim=1, eps=1e-30)
            move = move * (radius / move.norm(dim=1, keepdim=True).clamp(min=radius))
    return best.detach().sqrt()


def measure(job: Job) -> Row:
    """All starts of one example together, example after example."""
    torch.set_num_threads(job.num_threads)
    x, weights, starts = (torch.from_numpy(array) for array in job.load())

    def climb() -> float:
        found = [
            climbed(words, weights, at, job.radius, job.num_steps).max().item()
            for words, at in zip(x, starts, strict=True)
        ]
        return float(np.mean(found))

    return timed_row(climb, job.repeats)
