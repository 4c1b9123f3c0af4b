"""Text datasets in files: every layout, and every bad row with file and line."""

import json

import numpy as np
import pytest

import jaxsens.data as data
from jaxsens.data.text import TEXT_SPLITS, Texts, load_text, text_spec

MRPC = "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String"


def write(path, *lines, newline="\n"):
    path.parent.mkdir(parents=True, exist_ok=True)
    content = [line if isinstance(line, bytes) else line.encode() for line in lines]
    path.write_bytes(b"".join(line + newline.encode() for line in content))
    return path


def write_qqp(root, *rows, split="train"):
    return write(root / "qqp" / f"{split}.tsv", "id\tquestion1\tquestion2\tis_duplicate", *rows)


# ---------------------------------------------------------------------------------------- Texts


def test_slices_and_subsets_keep_rows_together():
    labels = np.array([0, 1, 1], np.int32)
    texts = Texts(("a", "b", "c"), ("x", "y", "z"), labels)
    assert len(texts) == 3
    part = texts[1:]
    assert (part.first, part.second, part.labels.tolist()) == (("b", "c"), ("y", "z"), [1, 1])
    part = texts.subset(np.array([2, 0]))
    assert (part.first, part.second, part.labels.tolist()) == (("c", "a"), ("z", "x"), [1, 0])
    single = Texts(("a", "b", "c"), None, labels)
    assert (single[:2].second, single.subset([]).second) == (None, None)
    assert len(single.subset([])) == 0
    assert list(single.strings()) == ["a", "b", "c"]


def test_texts_of_different_lengths_are_refused():
    with pytest.raises(ValueError, match="got 1, 2 and 1"):
        Texts(("a",), ("x", "y"), np.zeros(1, np.int32))


# --------------------------------------------------------------------------------------- layouts


@pytest.mark.parametrize(
    ("name", "header", "rows", "labels"),
    [
        ("mrpc", MRPC, ["1\t7\t8\tA\tB", "0\t9\t6\tC\tD"], [1, 0]),
        ("mrpc", "sentence1\tsentence2\tlabel", ["A\tB\tequivalent", "C\tD\t0"], [1, 0]),
        ("qqp", "id\tquestion1\tquestion2\tis_duplicate", ["1\tA\tB\t0", "2\tC\tD\t1"], [0, 1]),
        (
            "qqp",
            "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate",
            ["1\t2\t3\tA\tB\t0", "4\t5\t6\tC\tD\t1"],
            [0, 1],
        ),
        (
            "rte",
            "index\tsentence1\tsentence2\tlabel",
            ["0\tA\tB\tnot_entailment", "1\tC\tD\tentailment"],
            [1, 0],
        ),
        (
            "qnli",
            "index\tquestion\tsentence\tlabel",
            ["0\tA\tB\tentailment", "1\tC\tD\tnot_entailment"],
            [0, 1],
        ),
        ("sst2", "sentence\tlabel", ["A\t1", "C \t0"], [1, 0]),
        ("imdb", "file\tlabel\ttext", ["a.txt\t0\tA", "b.txt\t1\tC"], [0, 1]),
        ("boolq", "question\tpassage\tlabel", ["A\tB\tTrue", "C\tD\tfalse"], [1, 0]),
    ],
)
def test_columns_are_found_by_their_names(tmp_path, name, header, rows, labels):
    spec = text_spec(name)
    for split in TEXT_SPLITS:
        write(tmp_path / name / f"{spec.file_stems(split)[0]}.tsv", header, *rows)
        texts = load_text(name, split, tmp_path)
        assert texts.first == ("A", "C")
        assert texts.second == (("B", "D") if spec.second else None)
        assert texts.labels.tolist() == labels
        assert texts.labels.dtype == np.int32


def test_quotes_are_text_and_only_newlines_end_a_row(tmp_path):
    rows = ['1\t1\t2\t"A lone quote\tB "quoted" B', "0\t3\t4\tline\u2028sep \x85\tnaïve 数"]
    path = write(tmp_path / "mrpc" / "train.tsv", "\ufeff" + MRPC, *rows, newline="\r\n")
    path.write_bytes(path.read_bytes().removesuffix(b"\r\n"))  # no newline at the end
    texts = load_text("mrpc", "train", tmp_path)
    assert texts.first == ('"A lone quote', "line\u2028sep")
    assert texts.second == ('B "quoted" B', "naïve 数")


@pytest.mark.parametrize("folder", ["mrpc", "MRPC", "glue_data/MRPC"])
def test_the_usual_folders(tmp_path, folder):
    write(tmp_path / folder / "train.tsv", MRPC, "1\t1\t2\tA\tB")
    assert load_text("mrpc", "train", tmp_path).first == ("A",)
    assert load_text("mrpc", "train", tmp_path / folder).first == ("A",)


def test_a_plain_name_in_a_folder_of_another_name_is_not_read(tmp_path):
    write(tmp_path / "train.tsv", MRPC, "1\t1\t2\tA\tB")
    with pytest.raises(data.DatasetNotFoundError):
        load_text("mrpc", "train", tmp_path)
    write(tmp_path / "mrpc_train_1.tsv", MRPC, "1\t1\t2\tC\tD")
    assert load_text("mrpc", "train", tmp_path).first == ("C",)


def test_two_files_for_one_split_are_refused(tmp_path):
    for name in ("imdb_train_1.tsv", "imdb_train_2.tsv"):
        write(tmp_path / "imdb" / name, "label\ttext", "1\tA")
    with pytest.raises(data.CorruptDataError, match=r"imdb_train_1\.tsv, imdb_train_2\.tsv; keep"):
        load_text("imdb", "train", tmp_path)


def test_the_original_mrpc_is_cut_by_the_list_of_ids(tmp_path):
    folder = tmp_path / "mrpc"
    rows = ["1\t1\t2\tA\tB", "0\t3\t4\tC\tD", "1\t5\t6\tE\tF"]
    write(folder / "msr_paraphrase_train.txt", "\ufeff" + MRPC, *rows, newline="\r\n")
    with pytest.raises(data.DatasetNotFoundError, match=r"mrpc_dev_ids\.tsv or .* add it"):
        load_text("mrpc", "train", tmp_path)
    write(folder / "mrpc_dev_ids.tsv", "3\t4")
    assert load_text("mrpc", "train", tmp_path).first == ("A", "E")
    assert load_text("mrpc", "validation", tmp_path).second == ("D",)
    write(folder / "msr_paraphrase_train.txt", MRPC, *rows, "short")
    for split in TEXT_SPLITS:
        with pytest.raises(data.CorruptDataError, match=r"train\.txt, line 5: expected 5 columns"):
            load_text("mrpc", split, tmp_path)


def test_the_original_imdb_is_a_file_a_review(tmp_path):
    root = tmp_path / "imdb" / "aclImdb"
    for split, name, text in [
        ("train", "neg/1_2.txt", "bad"),
        ("train", "pos/0_9.txt", "good\n"),
        ("test", "pos/0_8.txt", "fine"),
        ("train", "unsup/0_0.txt", "not read"),
    ]:
        write(root / split / name, text)
    train = load_text("imdb", "train", tmp_path)
    assert (train.first, train.second, train.labels.tolist()) == (("bad", "good"), None, [0, 1])
    assert load_text("imdb", "validation", tmp_path).first == ("fine",)
    write(root / "train" / "pos" / "3_9.txt", b"caf\xe9")
    with pytest.raises(data.CorruptDataError, match=r"train, pos/3_9\.txt: .* 0xe9 at place 4"):
        load_text("imdb", "train", tmp_path)


@pytest.mark.parametrize("key", ["answer", "label"])
def test_boolq_is_one_json_object_a_line(tmp_path, key):
    rows = [{"question": "A", "passage": "B", key: True}, {"passage": "D", "question": "C", key: 0}]
    write(tmp_path / "boolq" / "train.jsonl", *map(json.dumps, rows))
    texts = load_text("boolq", "train", tmp_path)
    assert (texts.first, texts.second) == (("A", "C"), ("B", "D"))
    assert texts.labels.tolist() == [1, 0]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("{", r"a JSON object, got b'\{'"),
        ("[1]", "a JSON object, got a list"),
        ('{"question": "A", "label": true}', "a passage, got question, label"),
        ('{"question": 3, "passage": "B", "label": true}', "a text, got 3"),
        ('{"question": "A", "passage": "B", "label": "maybe"}', "the label .* got 'maybe'"),
        ('{"question": ' * 50_000, "a JSON object, got one that is nested too deeply"),
        ("[" * 50_000, "a JSON object, got one that is nested too deeply"),
        ('{"question": "A", "label": 1, "label": 0}', "a JSON object, got .* key 'label' twice"),
        (r'{"question": "\ud800", "passage": "B", "label": true}', "a text, got half a character"),
        (r'{"question": "A\u0000B", "passage": "B", "label": true}', "a text, got a NUL byte"),
        (b"\xff{}", "UTF-8, got byte 0xff at place 1"),
    ],
)
def test_bad_json_lines_are_named(tmp_path, line, problem):
    good = '{"question": "A", "passage": "B", "label": true}'
    write(tmp_path / "boolq" / "dev.jsonl", good, line)
    with pytest.raises(data.CorruptDataError, match=rf"dev\.jsonl, line 2: expected {problem}"):
        load_text("boolq", "validation", tmp_path)
    with pytest.warns(UserWarning, match=r"skipped 1 bad of 2 rows:\n.*jsonl, line 2: "):
        assert len(load_text("boolq", "validation", tmp_path, skip_bad_rows=True)) == 1


# -------------------------------------------------------------------------------------- bad rows


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        (b"3\tcaf\xe9\tB\t1", "UTF-8, got byte 0xe9 at place 6"),
        ("3\t \tB\t1", "a text, got an empty one"),
        ("3\tA\t\t1", "a text, got an empty one"),
        (b"3\tA\0\0\tB\t1", "a text, got a NUL byte at place 2"),
        ("", "4 columns, got 1"),
        ("one column", "4 columns, got 1"),
        ("3\tA\t1", "4 columns, got 3"),
        ("3\tA\tB\tC\t1", "4 columns, got 5"),
        ("3\tA\tB\t2", r"the label 0 or 1 \(not_duplicate or duplicate\), got '2'"),
        ("3\tA\tB\t", "the label 0 or 1 .* got ''"),
        ("3\tA\tB\t-1", "the label 0 or 1 .* got '-1'"),
    ],
)
def test_a_bad_row_is_named_and_skipped_only_on_demand(tmp_path, row, problem):
    path = write_qqp(tmp_path, "1\tA\tB\t0", row, "5\tC\tD\t1", row)
    with pytest.raises(data.CorruptDataError, match=f"expected {problem}") as caught:
        load_text("qqp", "train", tmp_path)
    message = str(caught.value)
    assert message.startswith(f"{path}, line 3: expected")
    assert "--skip-bad-rows (in Python skip_bad_rows=True)" in message
    assert "\n" not in message
    assert caught.value.__cause__ is None
    named = "".join(rf"\n  .*train\.tsv, line {line}: expected {problem}" for line in (3, 5))
    with pytest.warns(UserWarning, match=f"skipped 2 bad of 4 rows:{named}"):
        texts = load_text("qqp", "train", tmp_path, skip_bad_rows=True)
    assert (texts.first, texts.labels.tolist()) == (("A", "C"), [0, 1])


@pytest.mark.parametrize("num_bad", [20, 23])
def test_the_first_twenty_skipped_rows_are_listed(tmp_path, num_bad):
    path = write_qqp(tmp_path, "1\tA\tB\t0", *["bad"] * num_bad)
    with pytest.warns(UserWarning, match=f"skipped {num_bad} bad") as caught:
        load_text("qqp", "train", tmp_path, skip_bad_rows=True)
    _, *lines = str(caught[0].message).split("\n")
    assert lines[:20] == [f"  {path}, line {3 + i}: expected 4 columns, got 1" for i in range(20)]
    assert lines[20:] == (["  … and 3 more"] if num_bad == 23 else [])


def test_good_files_give_no_warning_when_skipping_is_allowed(tmp_path):
    write_qqp(tmp_path, "1\tA\tB\t0")
    assert len(load_text("qqp", "train", tmp_path, skip_bad_rows=True)) == 1


def test_a_file_without_a_good_row_is_an_error_in_any_case(tmp_path):
    write_qqp(tmp_path, "x", "y")
    message = r"at least one good row, got none \(the first of 2 bad ones: line 2: expected 4 col"
    with pytest.raises(data.CorruptDataError, match=message):
        load_text("qqp", "train", tmp_path, skip_bad_rows=True)
    write_qqp(tmp_path)
    with pytest.raises(data.CorruptDataError, match=r"at least one good row, got none$"):
        load_text("qqp", "train", tmp_path)


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ("id\tq1\tq2\tis_duplicate", "a column called question1, got id, q1, q2, is_duplicate"),
        ("id\tquestion1\tis_duplicate", "a column called question2, got"),
        ("id\tquestion1\tquestion2", "a column called is_duplicate or label, got"),
        (b"\xff\xfe", "a column called question1, got"),
    ],
)
def test_a_header_without_a_column_is_named(tmp_path, header, message):
    write(tmp_path / "qqp" / "train.tsv", header, "1\tA\tB\t0")
    expected = rf"train\.tsv, line 1: expected a header with {message}"
    with pytest.raises(data.CorruptDataError, match=expected):
        load_text("qqp", "train", tmp_path, skip_bad_rows=True)


def test_an_empty_file_is_named(tmp_path):
    write(tmp_path / "qqp" / "train.tsv")
    with pytest.raises(data.CorruptDataError, match=r"line 1: .* got an empty file"):
        load_text("qqp", "train", tmp_path)


def test_a_line_that_never_ends_is_named(tmp_path):
    write_qqp(tmp_path, "1\tA\tB\t0", "x" * (1 << 20))
    with pytest.raises(data.CorruptDataError, match="line 3: expected at most 1048576 bytes"):
        load_text("qqp", "train", tmp_path, skip_bad_rows=True)
