"""The side of PyTorch in the suite "training": the usual loop, without jaxsens and without JAX."""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from benchmarks.torch_layers import tensor
from benchmarks.torch_reference import channels_first, make_model, with_true_mask
from benchmarks.training_cell import RATE, Advance, Job


def eager(job: Job) -> Advance:
    """Operation by operation."""
    return _training(job, lambda network: network)


def compiled(job: Job) -> Advance:
    """The network and its gradient under `torch.compile`."""
    return _training(job, torch.compile)


def _training(job: Job, prepared: Callable[..., Callable[[Tensor], Tensor]]) -> Advance:
    torch.set_num_threads(job.num_threads)
    torch.set_float32_matmul_precision("highest")
    network = make_model(job.setting, job.weights).train()
    logits_fn = prepared(with_true_mask(network) if job.setting.takes_mask else network)
    optimizer = torch.optim.SGD(network.parameters(), lr=RATE)
    axes = channels_first(tuple(range(job.x.ndim - 1)))
    x = tensor(job.x.transpose(0, *(1 + axis for axis in axes)))
    y, order = tensor(job.y).long(), tensor(job.order).long()

    def advance() -> np.ndarray:
        losses = []
        for rows in order:
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(logits_fn(x[rows]), y[rows])
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        return torch.stack(losses).numpy()

    return advance
