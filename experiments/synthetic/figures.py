"""Figures of the experiment `synthetic`, from the records of its trained models."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing

from jaxsens.data.generated.sparse_tokens import TYPES
from jaxsens.figures.style import GREY, legend_below, look_of, new_figure, styled
from jaxsens.reporting.results import Figure
from jaxsens.reporting.run_folder import RunFolder

from .._common.figures import saved_figure
from .seeds import BOUNDS, Record, RecordsBySetting, by_cell, final_value, follows, mean_over_seeds
from .theory import PREDICTORS, SETTINGS

_ACCURACIES = {"train_accuracy": "train", "test_accuracy": "test", "ood_accuracy": "OOD test"}
_INSIDE = {
    "alignment": ("alignment of U W_Vᵀ", ("v_sp", "v_freq", "v_irrel")),
    "attention": ("attention, by type", TYPES),
    "attention_per_token": ("attention per token × T", TYPES),
}


def dynamics_figure(
    found: RecordsBySetting, settings: Sequence[int], name: str, figure: str, folder: RunFolder
) -> Figure:
    """Accuracies, sensitivity, alignment and attention along training."""
    return saved_figure(
        _draw_dynamics(found, settings),
        folder,
        name,
        f"Along training, mean over seeds with 95 % intervals ({figure}): accuracies (OOD: sparse "
        "tokens of the other class), exact sensitivity with those of the two predictors (dashed), "
        "cosine of the rows of U W_Vᵀ, attention summed over the tokens of a type, and attention "
        "per token, where 1 is uniform. Rows: settings (n_s, n_f, n_d, m).",
    )


@styled
def _draw_dynamics(found: RecordsBySetting, settings: Sequence[int]) -> Drawing:
    num_columns = 2 + len(_INSIDE)
    fig = new_figure(2.9 * num_columns, 2.3 * len(settings) + 0.5)
    grid = fig.subplots(len(settings), num_columns, squeeze=False, sharex=True)
    for row, i in zip(grid, settings, strict=True):
        records = found[i]
        for k, (name, label) in enumerate(_ACCURACIES.items()):
            _curve(row[0], k, label, records, name)
        _curve(row[1], 6, "model", records, "sensitivity")
        for k, predictor in enumerate(PREDICTORS):
            value = float(SETTINGS[i].sensitivity(predictor))
            color = look_of(k, 1)["color"]
            row[1].axhline(value, color=color, linestyle="--", label=f"{predictor} predictor")
        for axes, (name, (_, labels)) in zip(row[2:], _INSIDE.items(), strict=True):
            for k, label in enumerate(labels):
                _curve(axes, k, label, records, name, k)
        row[0].set(ylabel=f"{SETTINGS[i].label}\naccuracy", ylim=(-0.04, 1.04))
        row[1].set_ylabel("sensitivity")
        row[1].set_ylim(bottom=-0.004)
        row[2].set_ylim(top=1.04)
        row[3].set_ylim(-0.04, 1.04)
        row[4].set_ylim(0, max(2.0, row[4].get_ylim()[1]))
    titles = ("accuracy", "sensitivity", *(title for title, _ in _INSIDE.values()))
    for axes, title in zip(grid[0], titles, strict=True):
        axes.set_title(title)
        axes.legend(fontsize=8)
    for axes in grid[-1]:
        axes.set_xlabel("epoch")
    return fig


def _curve(
    axes: Axes, i: int, label: str, records: Sequence[Record], name: str, index: int | None = None
) -> None:
    """Mean and band over the models that have not diverged by then."""
    epochs = records[0]["epochs"]
    points = []
    for t in range(len(epochs)):
        values = [record[name][t] for record in records]
        values = values if index is None else [value[index] for value in values]
        points.append(mean_over_seeds(values, BOUNDS.get(name, (0.0, 1.0))))
    mean, low, high = (np.array(column) for column in zip(*points, strict=True))
    look = look_of(i, len(epochs))
    axes.plot(epochs, mean, label=label, **look)
    axes.fill_between(epochs, low, high, color=look["color"], alpha=0.18, linewidth=0)


def phase_figure(cells: Sequence[Record], epochs: int, folder: RunFolder) -> Figure:
    """Where the claim holds over initial scale and learning rate."""
    return saved_figure(
        _draw_phase(cells),
        folder,
        "phase",
        f"Share of seeds that use the tokens of the less sensitive predictor after {epochs} "
        "epochs, over the initial scale σ and the learning rate. In each cell the mean accuracy "
        "with exchanged sparse tokens (0 for sparse-favouring, 1 for frequent-favouring settings); "
        "in brackets the mean test accuracy where it is below 0.95; × where models diverged.",
    )


@styled
def _draw_phase(cells: Sequence[Record]) -> Drawing:
    groups = by_cell(cells)
    settings = sorted({i for i, _, _ in groups})
    sigmas = sorted({sigma for _, sigma, _ in groups})
    rates = sorted({rate for _, _, rate in groups})
    fig = new_figure((0.8 * len(rates) + 0.9) * len(settings) + 1.2, 0.42 * len(sigmas) + 1.5)
    grid = fig.subplots(1, len(settings), squeeze=False, sharey=True)[0]
    for axes, i in zip(grid, settings, strict=True):
        share = np.array(
            [[np.mean([follows(r) for r in groups[i, s, rate]]) for rate in rates] for s in sigmas]
        )
        image = axes.imshow(share, vmin=0, vmax=1, cmap="viridis", origin="lower", aspect="auto")
        for y, sigma in enumerate(sigmas):
            for x, rate in enumerate(rates):
                text = _cell_text(groups[i, sigma, rate])
                color = "black" if share[y, x] > 0.6 else "white"
                axes.text(x, y, text, ha="center", va="center", fontsize=8, color=color)
        axes.set_xticks(range(len(rates)), [f"{rate:g}" for rate in rates])
        axes.set_yticks(range(len(sigmas)), [f"{sigma:g}" for sigma in sigmas])
        axes.set(title=f"{SETTINGS[i].label}\n→ {SETTINGS[i].favours}", xlabel="learning rate")
        axes.grid(False)
    grid[0].set_ylabel("initial σ")
    fig.colorbar(image, ax=grid, label="share of seeds")
    return fig


def _cell_text(records: Sequence[Record]) -> str:
    if any(record["loss"][-1] is None for record in records):
        return "×"
    test = final_value(records, "test_accuracy").mean
    text = f"{final_value(records, 'ood_accuracy').mean:.2f}"
    return text if test >= 0.95 else f"{text}\n({test:.2f})"


def head_figure(by_head: Mapping[str, RecordsBySetting], folder: RunFolder) -> Figure:
    """Attention beside the controls."""
    return saved_figure(
        _draw_heads(by_head),
        folder,
        "heads",
        "Attention and the controls without attention after the last epoch, with 95 % intervals "
        "over seeds. Filled: accuracy with exchanged sparse tokens, 0 if the sparse tokens decide "
        "and 1 if the frequent ones do. Open: test accuracy.",
    )


@styled
def _draw_heads(by_head: Mapping[str, RecordsBySetting]) -> Drawing:
    fig = new_figure(8.4, 3.4)
    axes = fig.subplots()
    settings = sorted(by_head["attention"])
    for k, (head, found) in enumerate(by_head.items()):
        look = look_of(k, 1)
        x = np.arange(len(settings)) + 0.2 * (k - (len(by_head) - 1) / 2)
        for name, face in (("test_accuracy", "white"), ("ood_accuracy", look["color"])):
            mean, low, high = np.array([final_value(found[i], name) for i in settings]).T
            axes.errorbar(
                x,
                mean,
                [mean - low, high - mean],
                color=look["color"],
                marker=look["marker"],
                markerfacecolor=face,
                markersize=6,
                linestyle="none",
                capsize=3,
                label=head if name == "ood_accuracy" else None,
            )
    axes.axhline(0.5, color=GREY, linestyle=":", linewidth=1)
    axes.set_xticks(range(len(settings)), [SETTINGS[i].label for i in settings])
    axes.set(ylabel="accuracy", ylim=(-0.05, 1.05), xlabel="setting (n_s, n_f, n_d, m)")
    legend_below(fig, num_columns=len(by_head))
    return fig
