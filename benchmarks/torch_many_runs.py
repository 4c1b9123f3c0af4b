"""The side of PyTorch in the suite "many-runs": the loop that the authors of the paper wrote.

`torch.nn.TransformerEncoder`, fresh bits for every step, `torch.optim.AdamW`, eager.
"""

import multiprocessing
import threading
from concurrent.futures import ProcessPoolExecutor

import torch

from benchmarks.cell import timed
from benchmarks.frame import Row
from benchmarks.many_runs_cell import DECAY, HEADS, LAYERS, RATE, WIDTH, Job


class BitTransformer(torch.nn.Module):
    """Bits and positions embedded side by side, a post-norm encoder, read at the last position."""

    def __init__(self, length: int):
        super().__init__()
        self.bits = torch.nn.Embedding(2, WIDTH // 2)
        self.positions = torch.nn.Embedding(length, WIDTH // 2)
        layer = torch.nn.TransformerEncoderLayer(
            WIDTH, HEADS, dim_feedforward=WIDTH, dropout=0.0, batch_first=True
        )
        self.encoder = torch.nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
        self.head = torch.nn.Linear(WIDTH, 1)

    def forward(self, bits: torch.Tensor) -> torch.Tensor:
        """One number per input."""
        positions = self.positions.weight.expand(len(bits), -1, -1)
        x = torch.cat([self.bits(bits), positions], dim=-1)
        return self.head(self.encoder(x)[:, -1])[:, 0]


class Training:
    """One run."""

    def __init__(self, job: Job, seed: int):
        torch.manual_seed(seed)
        self.job, self.network = job, BitTransformer(job.length)
        self.optimizer = torch.optim.AdamW(self.network.parameters(), lr=RATE, weight_decay=DECAY)

    def advance(self) -> float:
        """A stretch of training; its last loss."""
        for _ in range(self.job.steps):
            bits = torch.randint(0, 2, (self.job.batch, self.job.length))
            targets = (bits.sum(dim=1) % 2).float()
            loss = torch.nn.functional.mse_loss(self.network(bits), targets)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
        return loss.item()

    def row(self, num_runs: int) -> Row:
        """What does not depend on the time."""
        size = sum(parameter.numel() for parameter in self.network.parameters())
        return {"num_runs": num_runs, "num_inputs": self.job.batch, "num_parameters": size}


def one_after_the_other(job: Job) -> Row:
    """Times one run on all threads."""
    torch.set_num_threads(job.num_threads)
    training = Training(job, job.seed)
    return timed(training.advance, job.repeats) | training.row(1)


def side_by_side(job: Job) -> Row:
    """Times as many runs as there are threads, each in a process with one thread.

    Stretches begin together, so the slowest run's time is that of all.
    """
    context, num = multiprocessing.get_context("spawn"), job.num_threads
    with context.Manager() as manager, ProcessPoolExecutor(num, context) as pool:
        barrier = manager.Barrier(num)
        rows = list(pool.map(_one_of_several, [job] * num, range(num), [barrier] * num))
    seconds = [max(each) for each in zip(*(row["seconds"] for row in rows), strict=True)]
    cold = max(row["compile_seconds"] for row in rows)
    return rows[0] | {"seconds": seconds, "compile_seconds": cold}


def _one_of_several(job: Job, index: int, barrier: threading.Barrier) -> Row:
    torch.set_num_threads(1)
    training = Training(job, job.seed + index)
    try:
        # Imports do not belong to the first stretch.
        barrier.wait()
        return timed(lambda: _together(training, barrier), job.repeats) | training.row(
            job.num_threads
        )
    except BaseException:
        # The others would wait for ever.
        barrier.abort()
        raise


def _together(training: Training, barrier: threading.Barrier) -> float:
    barrier.wait()
    return training.advance()
