"""What jaxsens should reach, beside what it reached in this run."""

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.compare import BASELINE, PLAIN
from benchmarks.frame import Column, Row

#: The method that is judged.
JUDGED = "jaxsens"

#: By default jaxsens must never be slower than plain by more than a tenth.
LEAST_VS_PLAIN = 1 / 1.1


@dataclass(frozen=True)
class Target:
    """How many times as fast as the PyTorch loop and as plain jaxsens; None where none is set."""

    vs_loop: float | None = None
    vs_plain: float = LEAST_VS_PLAIN


#: Set before anything was measured.
TARGETS = {
    "mlp": Target(3, 5),
    "cnn": Target(10, 6),
    "vit": Target(10, 6),
    "resnet18": Target(1.5, 1.2),
    "vit8": Target(1.4),
    "lstm": Target(2, 1.8),
    "gpt2": Target(2, 1.8),
}

_TIMES = "{:.2f}×".format

COLUMNS = (
    Column("model", "model"),
    Column(f"vs {BASELINE}", "vs_loop", _TIMES),
    Column("target", "loop_target", _TIMES),
    Column("verdict", "loop_verdict"),
    Column("vs its full batch", "vs_full_batch", _TIMES),
    Column(f"vs {PLAIN}", "vs_plain", _TIMES),
    Column("target ", "plain_target", _TIMES),
    Column("verdict ", "plain_verdict"),
)


def verdicts(rows: Sequence[Row]) -> list[Row]:
    """A row for each model that `JUDGED` measured.

    The loop's time here is that of a batch of as many images as were measured; `vs_full_batch`
    divides it by the gain of the paper's batch, where that is larger.
    """
    found = []
    for model in dict.fromkeys(row["model"] for row in rows):
        seconds = {
            row["method"]: min(row["seconds"])
            for row in rows
            if row["model"] == model and "seconds" in row
        }
        if JUDGED not in seconds:
            continue
        target, verdict = TARGETS.get(model, Target()), Row(model=model)
        if BASELINE in seconds:
            ratio = seconds[BASELINE] / seconds[JUDGED]
            gain = _batch_gain(rows, model)
            verdict |= {
                "vs_loop": ratio,
                "loop_target": target.vs_loop,
                "loop_verdict": _verdict(ratio, target.vs_loop),
                "vs_full_batch": None if gain is None else ratio / gain,
            }
        if PLAIN in seconds:
            ratio = seconds[PLAIN] / seconds[JUDGED]
            verdict |= {
                "vs_plain": ratio,
                "plain_target": target.vs_plain,
                "plain_verdict": _verdict(ratio, target.vs_plain)
                if _reuses(rows, model)
                else "the same program",
            }
        found.append(verdict)
    return found


def _reuses(rows: Sequence[Row], model: str) -> bool:
    """Whether what is judged is another program than plain: if not, their ratio is noise."""
    judged = [row for row in rows if (row["model"], row["method"]) == (model, JUDGED)]
    return bool(judged[0].get("reuse", True))


def _batch_gain(rows: Sequence[Row], model: str) -> float | None:
    gains = [
        row["batch_gain"]
        for row in rows
        if (row["model"], row["method"]) == (model, BASELINE) and "batch_gain" in row
    ]
    return gains[0] if gains else None


def _verdict(ratio: float, target: float | None) -> str | None:
    if target is None:
        return None
    return "reached" if ratio >= target else f"short by {1 - ratio / target:.0%}"
