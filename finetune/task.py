"""What a fine-tuning task is: its kind, its files and columns, its labels and its scores.

Built-in tasks (finetune/tasks.json) and users' own are JSON with the fields of `Task`, see
finetune/declaration.py.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from finetune import kinds
from finetune.kinds.base import Kind
from settings import check_setting

# A column by name or number; several, of which each holds one item of a list.
Columns = str | int | tuple[str | int, ...]


@dataclasses.dataclass(frozen=True)
class Task:
    """The declaration of a task.

    Attributes:
        name: also the folder of its results.
        kind: one of `finetune.kinds.names()`; code asks `plugin`.
        files: split -> file, in the data folder or one of `folders`; a name may be a pattern
            ("*-ud-train.conllu"), or a tuple of names of which the first that exists is read. Or a
            folder of files (race). For format "tfds": split -> split of the dataset, or
            "dataset@split".
        format: tsv (no quoting at all, as GLUE's), csv (quoted), jsonl, conll (columns between
            whitespace, blank line between sentences), conllu, treebank (Penn Treebank, .pos or
            .mrg), squad, race, tfds.
        columns: role -> column, by name or, counted from 0 (from the end if negative), by number;
            or a list of columns, see `Kind.list_roles`. Roles: text_a, text_b, label, id; words,
            tags for tagging; context, question, options, level for multiple choice.
        metrics: names among those of the kind; the first is the main one.
        train: the training split.
        dev: the development splits; the first one is the headline.
        test: the test splits, whose labels may be hidden (the label column may be missing there).
        labels: in the order of the network's outputs; () where `resolve_labels` is to collect them
            from the training split.
        symmetric: whether training shows both orders of the two texts (ELECTRA's
            `double_unordered`); only for tasks with a text_b.
        label_range: regression: the lowest and the highest label; the network learns
            (label - low) / (high - low).
        tfds: the tensorflow-datasets name of the task, e.g. "glue/cola".
        version_2: span: whether questions may be unanswerable.
        header: whether tables begin with a line of column names.
        per_split: split -> {"columns": ..., "header": ...}, for a split laid out differently.
        lenient: whether texts may be empty and rows with a wrong number of fields are left out (and
            counted in the log; never in test splits); for official files that have such rows.
        folders: folders in which the files may be: those below the data folder are tried before the
            data folder itself, absolute ones (where a declaration lies) after it.
        delimiter: the character between the columns of tables; None: a tab (tsv) or a comma (csv).
        unseen_labels: whether labels that only development splits have count as wrong.
        untrained: those, at the end of `labels`: no answer is one of them.
        num_train_epochs: unless hyper-parameters say it; None: as the kind says. Runs record it
            among the hyper-parameters alone.
    """

    name: str
    kind: str
    files: dict[str, str | tuple[str, ...]]
    format: str
    columns: dict[str, Columns]
    metrics: tuple[str, ...]
    train: str = "train"
    dev: tuple[str, ...] = ("dev",)
    test: tuple[str, ...] = ("test",)
    labels: tuple[str, ...] = ()
    symmetric: bool = False
    label_range: tuple[float, float] = (0.0, 1.0)
    tfds: str | None = None
    version_2: bool = False
    header: bool = True
    per_split: dict[str, dict[str, Any]] = dataclasses.field(default_factory=dict)
    lenient: bool = False
    folders: tuple[str, ...] = ()
    delimiter: str | None = None
    unseen_labels: bool = False
    untrained: tuple[str, ...] = ()
    num_train_epochs: float | None = dataclasses.field(default=None, compare=False)

    def __post_init__(self) -> None:
        self._check()
        self.plugin.check(self)

    @property
    def plugin(self) -> Kind:
        """The kind of the task; InputError where no kind of this name is registered."""
        return kinds.get(self.kind)

    @property
    def splits(self) -> tuple[str, ...]:
        """All splits: training, development, test."""
        return (self.train, *self.dev, *self.test)

    def columns_of(self, split: str) -> dict[str, Columns]:
        """The columns of one split: `columns`, unless `per_split` has others."""
        return self.per_split.get(split, {}).get("columns", self.columns)

    def has_header(self, split: str) -> bool:
        """Whether one split's file begins with a line of column names."""
        return self.per_split.get(split, {}).get("header", self.header)

    @property
    def named_labels(self) -> tuple[str, ...]:
        """The labels if the declaration says them: `labels`, or binary columns' names."""
        columns = self.columns.get(self.plugin.target)
        named = isinstance(columns, tuple) and all(isinstance(name, str) for name in columns)
        return self.labels or (columns if named else ())

    def to_json(self) -> dict[str, Any]:
        """The task as a JSON object, from which `declaration.parse` makes an equal task."""
        values = dataclasses.asdict(self)
        del values["num_train_epochs"]
        return _lists(values)

    def _check(self) -> None:
        """Raises InputError for a declaration that makes no sense for any kind."""
        kind, splits, delimiter = self.plugin, self.splits, self.delimiter
        unlisted, (low, high) = sorted({*self.files, *self.per_split} - {*splits}), self.label_range
        name = self.name.isprintable() and not set(self.name) & set("/\\")
        of_split = f"the files of the splits {', '.join(splits)}"
        datasets = self.files.values() if self.format == "tfds" else ()
        character = delimiter is None or (len(delimiter) == 1 and delimiter not in '"\r\n\0')
        for fits, field, expectation in (
            (self.format in kind.formats, "format", f"among {', '.join(kind.formats)} here"),
            (name and self.name not in ("", ".", ".."), "name", "usable as a folder's name"),
            (self.metrics, "metrics", "the name of at least one score"),
            (len(set(splits)) == len(splits), "splits", "named once each"),
            (set(splits) <= set(self.files), "files", of_split),
            (not unlisted, "files", f"{of_split}, unlike {', '.join(unlisted)}"),
            (self.dev, "files", "those of a development split, too, such as dev or validation"),
            (self.tfds or all("@" in x for x in datasets), "tfds", "a dataset, or `files` have it"),
            (not delimiter or self.format in ("tsv", "csv"), "delimiter", "given for tables only"),
            (character, "delimiter", "one character, no quotation mark and no line break"),
            (len(set(self.labels)) == len(self.labels) != 1, "labels", "distinct, at least two"),
            (kind.has_labels or not self.labels, "labels", f"left out of a {kind.name} task"),
            (low < high, "label_range", "[low, high]"),
        ):
            check_setting(self, bool(fits), field, expectation)


def _lists(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _lists(item) for key, item in value.items()}
    return [_lists(item) for item in value] if isinstance(value, (list, tuple)) else value
