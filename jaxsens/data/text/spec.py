"""What is known of a text dataset before any file is opened.

All tasks have two classes. Labels are numbered as in GLUE at TensorFlow Datasets and Hugging Face:
1 is "the same" or "positive", but for RTE and QNLI 0 is "entailment". Sizes are the official ones.
"""

import dataclasses

from jaxsens.data.errors import require_known

#: The splits of a text dataset: GLUE keeps the labels of its test splits to itself.
TEXT_SPLITS = ("train", "validation")


@dataclasses.dataclass(frozen=True)
class TextSpec:
    """The fixed facts of one text dataset.

    Attributes:
      name: the name `load_text` knows it by.
      title: the name to print.
      num_train: examples in the official training split.
      num_validation: examples in the official validation split.
      classes: the names of label 0 and label 1.
      first: what the column (or feature) of the first text may be called, the first found is read.
      second: the same for the second text of a pair, empty for a task of single texts.
      label: the same for the label.
      files: the files in words, for the error message that says how to get them.
      folders: folders in which its files usually lie, relative to a data directory, by default one
        of its name. The data directory itself is looked into as well.
      stems: for each split, what its file may be called, without ending.
      tfds_names: its folders under a data directory of TensorFlow Datasets.
      tfds_split: what TensorFlow Datasets calls the validation split.
      archive: the builder of TensorFlow Datasets that knows the addresses of its files.
      archive_files: the files to download; empty if it cannot be downloaded.

    Example:
      >>> facts = TextSpec("notes", "Notes", 800, 200, ("no", "yes"), first=("text",))
      >>> facts.num_examples("validation"), facts.usual_folders(), facts.file_stems("train")
      (200, ('notes',), ('train',))
    """

    name: str
    title: str
    num_train: int
    num_validation: int
    classes: tuple[str, str]
    first: tuple[str, ...] = ()
    second: tuple[str, ...] = ()
    label: tuple[str, ...] = ("label",)
    files: str = "train.tsv and dev.tsv with a header, as GLUE has them,"
    folders: tuple[str, ...] = ()
    stems: tuple[tuple[str, ...], tuple[str, ...]] = (("train",), ("dev", "validation", "val"))
    tfds_names: tuple[str, ...] = ()
    tfds_split: str = "validation"
    archive: str = "glue"
    archive_files: tuple[str, ...] = ()

    def num_examples(self, split: str) -> int:
        """Returns the size of the official split, "train" or "validation"."""
        return {"train": self.num_train, "validation": self.num_validation}[split]

    def usual_folders(self) -> tuple[str, ...]:
        """Returns `folders`, or the dataset's name if none are given."""
        return self.folders or (self.name,)

    def file_stems(self, split: str) -> tuple[str, ...]:
        """Returns what the split's file may be called, without ending."""
        return dict(zip(TEXT_SPLITS, self.stems, strict=True))[split]


_ENTAILMENT = ("entailment", "not_entailment")
_SENTIMENT = ("negative", "positive")

_SPECS = {
    spec.name: spec
    for spec in (
        TextSpec(
            *("mrpc", "MRPC", 3_668, 408, ("not_equivalent", "equivalent")),
            first=("#1 String", "sentence1"),
            second=("#2 String", "sentence2"),
            label=("Quality", "label"),
            folders=("mrpc", "MRPC", "glue_data/MRPC"),
            tfds_names=("glue/mrpc",),
            archive_files=("msr_paraphrase_train.txt", "mrpc_dev_ids.tsv"),
        ),
        TextSpec(
            *("qqp", "QQP", 363_846, 40_430, ("not_duplicate", "duplicate")),
            first=("question1",),
            second=("question2",),
            label=("is_duplicate", "label"),
            folders=("qqp", "QQP", "glue_data/QQP"),
            tfds_names=("glue/qqp",),
            archive_files=("QQP.zip",),
        ),
        TextSpec(
            *("rte", "RTE", 2_490, 277, _ENTAILMENT),
            first=("sentence1", "premise"),
            second=("sentence2", "hypothesis"),
            folders=("rte", "RTE", "glue_data/RTE"),
            tfds_names=("glue/rte",),
            archive_files=("RTE.zip",),
        ),
        TextSpec(
            *("qnli", "QNLI", 104_743, 5_463, _ENTAILMENT),
            first=("question",),
            second=("sentence",),
            folders=("qnli", "QNLI", "glue_data/QNLI"),
            tfds_names=("glue/qnli",),
            archive_files=("QNLIv2.zip",),
        ),
        TextSpec(
            *("sst2", "SST-2", 67_349, 872, _SENTIMENT),
            first=("sentence",),
            folders=("sst2", "SST-2", "glue_data/SST-2"),
            tfds_names=("glue/sst2",),
            archive_files=("SST-2.zip",),
        ),
        TextSpec(
            *("boolq", "BoolQ", 9_427, 3_270, ("false", "true")),
            first=("question",),
            second=("passage",),
            label=("label", "answer"),
            files="train.jsonl and dev.jsonl",
            folders=("boolq", "BoolQ"),
            tfds_names=("super_glue/boolq", "bool_q"),
            archive="bool_q",
            archive_files=("train.jsonl", "dev.jsonl"),
        ),
        TextSpec(
            *("imdb", "IMDB", 25_000, 25_000, _SENTIMENT),
            first=("text",),
            files="aclImdb/ from aclImdb_v1.tar.gz, or train.tsv and test.tsv with the columns "
            "label and text,",
            folders=("imdb", "IMDB", "aclImdb"),
            # IMDB has no validation split; its test split takes the place.
            stems=(("train",), ("test",)),
            tfds_names=("imdb_reviews/plain_text",),
            tfds_split="test",
            archive="imdb_reviews",
            archive_files=("aclImdb_v1.tar.gz",),
        ),
        TextSpec(*("paraphrases", "Generated paraphrases", 4_000, 1_000, ("changed", "same"))),
    )
}
#: The text datasets that come with jaxsens; `register_text` adds others.
TEXT_NAMES = tuple(_SPECS)


def register_text(spec: TextSpec) -> None:
    """Makes a text dataset in tsv or jsonl files known to `load_text` and `text_spec`.

    Its columns are found by the names in the spec, so nothing needs to be programmed.

    Raises:
      ValueError: another text dataset has the name.

    Example:
      >>> register_text(text_spec("mrpc"))  # once more, with the same facts: nothing changes
    """
    if _SPECS.get(spec.name, spec) != spec:
        raise ValueError(f"there is another text dataset {spec.name!r}; choose another name")
    _SPECS[spec.name] = spec


def text_spec(name: str) -> TextSpec:
    """Returns the fixed facts of a text dataset.

    Raises:
      ValueError: there is no text dataset of that name.

    Example:
      >>> text_spec("mrpc").num_train, text_spec("rte").classes
      (3668, ('entailment', 'not_entailment'))
    """
    require_known("text dataset", name, _SPECS)
    return _SPECS[name]
