"""The flags of the experiment `word_sensitivity`."""

from dataclasses import dataclass
from typing import Annotated

from jaxsens.cli.bounds import Count, Depth, Draws, Folder, Range, RunName, Runs, Seed, Several
from jaxsens.cli.config import ExperimentConfig
from jaxsens.core import memory

#: Words of a text, and their width.
Words = Annotated[int, Range(4, 10_000, because="ReLU attention to fewer is often 0")]
Width = Annotated[int, Range(2, 100_000)]


@dataclass(frozen=True)
class Config(ExperimentConfig):
    """Flags of the experiment."""

    d: Annotated[tuple[Width, ...], Several()] = (16, 192)
    """Widths of a word."""
    n: Annotated[tuple[Words, ...], Several(at_least=2)] = (10, 20, 40, 80, 160)
    """Numbers of words of a text."""
    depths: Annotated[tuple[Depth, ...], Several(at_least=2)] = (1, 2, 4, 8)
    """Layers L of the deep random features."""
    num_seeds: Runs = 5
    """Texts and random weights of each cell of the grid."""
    num_starts: Annotated[int, Range(2, 10_000, because="one start may be stuck")] = 8
    """Starts of each ascent."""
    num_steps: Count = 200
    """Steps of each ascent."""
    num_random: Draws = 64
    """Random moves of a word on the same sphere, beside the worst one."""
    dense_limit: Count = 1_280
    """Largest D = n·d at which layers of D × D weights are made, for deep random features."""
    all_words_n: Annotated[tuple[Words, ...], Several(at_least=0)] = (10,)
    """Those n at which the worst of all words is looked for, beside the worst of the first."""
    all_words_limit: Count = 160
    """Largest D at which that is done for random features, whose weights are then D × D."""
    mean_share: Annotated[float, Range(0, 1, "()")] = 0.3
    """α: the share of a common mean in words that are not independent."""
    stuck_n: Words = 40
    """n at which single starts are counted that do not find what others find."""
    stuck_seeds: Runs = 12
    """Texts for that count."""
    context_d: Width = 256
    """Width of a word where the context is modified."""
    context_n: Annotated[tuple[Words, ...], Several()] = (16,)
    """Words of a text there."""
    context_train: Annotated[tuple[Count, ...], Several()] = (100,)
    """N, texts that are interpolated there."""
    context_seeds: Runs = 10
    """Data sets and random weights there."""
    context_dense: Annotated[tuple[Depth, ...], Several(at_least=0)] = (2,)
    """Depths of deep random features there, where `context_dense_limit` has room for them."""
    context_dense_limit: Count = 4_096
    """Largest D there at which layers of D × D weights are made."""
    reuse: Annotated[tuple[RunName, ...], Several(at_least=0)] = ()
    """Folders of runs of `language` or `vision`, whose models are measured untrained and trained;
    the embeddings of a language run are also texts for the random maps."""
    num_measured: Runs = 8
    """Texts or images for each of these models."""
    num_places: Count = 4
    """Words or patches of each of them whose worst change is looked for, spread evenly."""
    embeddings: Folder | None = None
    """Folder with model.safetensors and vocab.txt of bert-base-uncased: IMDB's reviews in BERT's
    embeddings become texts for the random maps (needs the package safetensors)."""
    seed: Seed = 0
    """Of texts, weights and starts."""

    def check(self) -> None:
        """Raises ValueError for grids that do not fit together."""
        strange = [n for n in self.all_words_n if n not in self.n]
        if strange:
            raise ValueError(
                f"all_words_n={strange[0]} is not one of n={', '.join(map(str, self.n))}; choose "
                "from them"
            )
        for n in self.context_n:
            for num in self.context_train:
                if num >= n * self.context_d:
                    raise ValueError(
                        f"context_train={num} texts cannot be interpolated with n·d = "
                        f"{n}·{self.context_d} = {n * self.context_d} features; choose fewer texts"
                    )

    def require_memory(self) -> None:
        """Raises ValueError for what this machine has no room for; presets are for any machine."""
        widest, longest = max(self.d), max(self.n)
        # The weights that one word meets, once as drawn and once as used.
        memory.require(
            2 * 4 * widest * widest * longest,
            f"random features of d={widest} and n={longest}",
            remedy="choose a smaller --d or --n",
        )
        sizes = [n * d for n in self.n for d in self.d if n * d <= self.dense_limit]
        largest = max(sizes, default=0)
        memory.require(
            2 * 4 * max(self.depths) * largest**2,
            f"{max(self.depths)} layers of {largest} × {largest} weights",
            remedy="choose a smaller --dense-limit or --depths",
        )
        sizes = [n * d for n in self.all_words_n for d in self.d if n * d <= self.all_words_limit]
        largest = max(sizes, default=0)
        memory.require(
            2 * 4 * largest**2,
            f"{largest} × {largest} weights of random features, for the worst of all words",
            remedy="choose a smaller --all-words-limit or --all-words-n",
        )
        sizes = [n * self.context_d for n in self.context_n]
        largest = max((size for size in sizes if size <= self.context_dense_limit), default=0)
        memory.require(
            2 * 4 * max(self.context_dense, default=0) * largest**2,
            f"{largest} × {largest} weights of deep random features, where a context is modified",
            remedy="choose a smaller --context-dense-limit or --context-dense",
        )
        texts = max(self.num_seeds * longest, self.stuck_seeds * self.stuck_n) * widest
        memory.require(
            2 * 4 * texts,
            f"texts of {texts} numbers",
            remedy="choose a smaller --n, --num-seeds, --stuck-n or --stuck-seeds",
        )
        features = max(self.context_n) * self.context_d
        memory.require(
            # Texts and features as float32, features and their product as float64.
            max(self.context_train) * (24 * features + 16 * max(self.context_train)),
            f"{max(self.context_train)} texts of {features} features",
            remedy="choose a smaller --context-train, --context-n or --context-d",
        )
