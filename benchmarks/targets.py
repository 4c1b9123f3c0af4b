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
    """How many times as fast as the fastest PyTorch method and as plain jaxsens."""

    vs_torch: float = 1.0
    vs_plain: float = LEAST_VS_PLAIN


#: Against plain: set before anything was measured. Against PyTorch: set anew when its fastest
#: method, no longer the loop, became the measure.
TARGETS = {
    "mlp": Target(6, 5),
    "cnn": Target(6, 6),
    "vit": Target(6, 6),
    "resnet18": Target(1.5, 1.2),
    "densenet121": Target(1.5),
    "convmixer": Target(1.5),
    "vit8": Target(1.5),
    "lstm": Target(2.5, 1.8),
    "roberta": Target(1.5),
    "gpt2": Target(2.5, 1.8),
}

_TIMES = "{:.2f}×".format

COLUMNS = (
    Column("model", "model"),
    Column("best torch", "best_torch"),
    Column("vs best torch", "vs_torch", _TIMES),
    Column("target", "torch_target", _TIMES),
    Column("verdict", "torch_verdict"),
    Column(f"vs {BASELINE}", "vs_loop", _TIMES),
    Column("vs its full batch", "vs_full_batch", _TIMES),
    Column(f"vs {PLAIN}", "vs_plain", _TIMES),
    Column("target ", "plain_target", _TIMES),
    Column("verdict ", "plain_verdict"),
)


def verdicts(rows: Sequence[Row]) -> list[Row]:
    """A row for each model that `JUDGED` measured.

    The fastest PyTorch method, captum among them, is chosen by model. The loop's time here is that
    of a batch of as many images as were measured; `vs_full_batch` divides it by the gain of the
    paper's batch, where that is larger.
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
        target, verdict, ours = TARGETS.get(model, Target()), Row(model=model), seconds[JUDGED]
        if peers := [name for name in seconds if not name.startswith("jaxsens")]:
            best = min(peers, key=lambda name: seconds[name])
            ratio = seconds[best] / ours
            verdict |= {
                "best_torch": best,
                "vs_torch": ratio,
                "torch_target": target.vs_torch,
                "torch_verdict": _verdict(ratio, target.vs_torch),
            }
        if BASELINE in seconds:
            ratio, gain = seconds[BASELINE] / ours, _batch_gain(rows, model)
            verdict |= {"vs_loop": ratio, "vs_full_batch": None if gain is None else ratio / gain}
        if PLAIN in seconds:
            ratio = seconds[PLAIN] / ours
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


def _verdict(ratio: float, target: float) -> str:
    return "reached" if ratio >= target else f"short by {1 - ratio / target:.0%}"
