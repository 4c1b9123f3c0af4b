"""Tables of the experiment `synthetic`, from the records of its trained models."""

from collections.abc import Mapping, Sequence

from jaxsens.data.generated.sparse_tokens import TYPES
from jaxsens.reporting.results import Cell, Table

from .seeds import Record, RecordsBySetting, by_cell, final_value, follows
from .theory import PREDICTORS, SETTINGS, linear_margin

_SEEDS = "Mean and 95 % Student-t interval over seeds (no width where all seeds agree)"


def predictor_table(predictors: Sequence[Record]) -> Table:
    """Tables 1 and 3."""
    return Table(
        title="Sensitivity of the two predictors (Tables 1 and 3)",
        columns=(
            "(n_s, n_f, n_d, m)",
            "M",
            "predictor",
            "paper",
            "closed form",
            "decimal",
            "enumerated",
        ),
        rows=tuple(
            (
                row["setting"],
                row["vocabulary"],
                row["predictor"],
                f"{row['paper']:.4f}",
                row["closed_form"],
                f"{row['value']:.6f}",
                ", ".join(row["enumerated"]),
            )
            for row in predictors
        ),
        note=f"Enumerated: every position × every token of {predictors[0]['num_sequences']} "
        "sequences, all values that occur. The paper prints m = 36 for the last setting, which "
        "needs M ≥ 75, while its 0.0339 needs M = 69, so m = 33; both are here, m = 33 is trained.",
    )


def result_table(found: RecordsBySetting) -> Table:
    """What the trained models do."""
    body: list[tuple[Cell, ...]] = []
    for i, records in found.items():
        setting = SETTINGS[i]
        predictors = " / ".join(f"{float(setting.sensitivity(p)):.4f}" for p in PREDICTORS)
        body.append(
            (
                setting.label,
                setting.favours,
                str(final_value(records, "test_accuracy")),
                "0" if setting.favours == "sparse" else "1",
                str(final_value(records, "ood_accuracy")),
                f"{sum(map(follows, records))} of {len(records)}",
                predictors,
                str(linear_margin(setting)),
                final_value(records, "final_sensitivity").text(5),
            )
        )
    return Table(
        title=f"One layer of self-attention, {_training(found)}",
        columns=(
            *("(n_s, n_f, n_d, m)", "favours", "test acc.", "paper's OOD", "OOD acc.", "seeds"),
            *("S of sparse / frequent", "D²/2m − n_s²/2", "S of the model"),
        ),
        rows=tuple(body),
        note=f"{_SEEDS}. OOD: the sparse tokens of the other class. Seeds: with test accuracy ≥ "
        "0.95 and OOD accuracy within 0.05 of the paper's. S: exact, every position × every token. "
        "D²/2m − n_s²/2 > 0: the least-norm linear predictor uses the frequent tokens.",
    )


def _training(found: RecordsBySetting) -> str:
    record = next(iter(found.values()))[0]
    return f"{record['epochs'][-1]} epochs with the {record['objective']} loss"


def inside_table(found: RecordsBySetting) -> Table:
    """What the trained models are made of."""
    body: list[tuple[Cell, ...]] = []
    for i, records in found.items():
        for k, kind in enumerate(TYPES):
            body.append(
                (
                    SETTINGS[i].label,
                    kind,
                    *(
                        str(final_value(records, name, k))
                        for name in ("alignment", "attention", "attention_per_token")
                    ),
                )
            )
    return Table(
        title=f"Inside these models, {_training(found)}",
        columns=(
            *("(n_s, n_f, n_d, m)", "tokens", "cosine of U W_Vᵀ", "attention, type"),
            "attention per token × T",
        ),
        rows=tuple(body),
        note=f"{_SEEDS}. Cosine: mean over rows, with v_sp, v_freq and v_irrel. Attention: mean "
        "over queries and sequences; per token, 1 is uniform.",
    )


def head_table(by_head: Mapping[str, RecordsBySetting]) -> Table:
    """The controls beside attention."""
    body: list[tuple[Cell, ...]] = []
    for i in range(len(SETTINGS)):
        for head, found in by_head.items():
            records = found[i]
            sensitivity = final_value(records, "final_sensitivity")
            accuracies = (
                str(final_value(records, name))
                for name in ("train_accuracy", "test_accuracy", "ood_accuracy")
            )
            body.append((SETTINGS[i].label, head, *accuracies, sensitivity.text(5)))
    return Table(
        title="Controls without attention",
        columns=("(n_s, n_f, n_d, m)", "head", "train acc.", "test acc.", "OOD acc.", "S"),
        rows=tuple(body),
        note=f"{_SEEDS}. MLP: hidden layer of 64 ReLU units on the flattened one-hot rows; summing "
        "MLP: on the sum of token embeddings. Same initial scale and epochs, each its own rate.",
    )


def phase_table(cells: Sequence[Record]) -> Table:
    """The phase diagram in numbers."""
    body: list[tuple[Cell, ...]] = []
    for (i, sigma, rate), records in by_cell(cells).items():
        num = sum(record["loss"][-1] is None for record in records)
        accuracies = (
            f"{final_value(records, name).mean:.3f}" for name in ("test_accuracy", "ood_accuracy")
        )
        share = f"{sum(map(follows, records))} of {len(records)}"
        numbers = (f"{sigma:g}", f"{rate:g}", *accuracies, share, num or None)
        body.append((SETTINGS[i].label, *numbers))
    return Table(
        title="Phase diagram: initial scale and learning rate",
        columns=("(n_s, n_f, n_d, m)", "σ", "rate", "test acc.", "OOD acc.", "seeds", "diverged"),
        rows=tuple(body),
        note="Means over the seeds that did not diverge; seeds: as above, of all.",
    )
