"""What run_pretraining.py rejects: by the name of what is wrong, before anything is written."""

import functools
import json
import shutil

import pytest

from data.vocabulary import Vocabulary
from errors import InputError
from tests.build_support import content
from tests.pretraining_support import HPARAMS, build_data, run

DEFAULTS = {**HPARAMS, "objective": "masked_lm"}  # half as much to trace
EVALUATE = {"do_train": False, "do_eval": True}
run = functools.partial(run, defaults=DEFAULTS)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A finished run `m`, its data `data`, and `longer`, data of longer sequences."""
    folder = tmp_path_factory.mktemp("rejected")
    build_data(folder, "longer", max_seq_length=64)
    run(build_data(folder), folder / "m")
    return folder


@pytest.fixture
def copies(folder, tmp_path):
    """A folder with copies of run and data, which a test may damage."""
    for name in ("m", "data"):
        shutil.copytree(folder / name, tmp_path / name)
    return tmp_path


def remove(pattern):
    def change(folder):
        for path in folder.glob(pattern):
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    return change


def edit(name, **changes):
    """Changes an object of a JSON file, named `path:key`."""
    path, _, key = name.partition(":")

    def change(folder):
        value = json.loads((folder / path).read_text())
        (value[key] if key else value).update(changes)
        (folder / path).write_text(json.dumps(value))

    return change


def write(pattern, text=None):
    """Writes files anew; without a text, they lose their last bytes."""

    def change(folder):
        for path in folder.glob(pattern):
            path.write_bytes(path.read_bytes()[:-50] if text is None else text.encode())

    return change


def vocabulary(known=False, **changes):
    """Another vocabulary of the data; `known` to the manifest of its records, which is removed."""

    def change(folder):
        tokens = Vocabulary.load(folder / "data").tokens
        if not changes:
            tokens = (*tokens[:-2], *reversed(tokens[-2:]))
        Vocabulary(tokens, **changes).save(folder / "data")
        if known:
            (folder / "data" / "manifest.json").unlink()

    return change


def widths(**changes):
    return {"model_hparam_overrides": {**HPARAMS["model_hparam_overrides"], **changes}}


OTHER = "holds a run of another configuration"
NEW = {"model_dir": "{0}/new"}
DATA = ["model.ckpt-5 ", "model.ckpt-10 ", "model.ckpt-12 "]
# What is done to the copies, hyper-parameters, options, and what the error names.
REJECTED = {
    # The run of another configuration, in whatever state its checkpoints are.
    "differences": (None, {"learning_rate": 2e-3, "mask_prob": 0.2}, {},
                    OTHER, "learning_rate: 0.001 there, 0.002 now", "mask_prob: 0.15 there"),
    "seed": (None, {}, {"seed": 7}, "seed: 0 there, 7 now"),
    "no list": (remove("m/checkpoints/checkpoint"), widths(hidden_size=48), {}, OTHER),
    "no index": (remove("m/checkpoints/*12.index"), widths(hidden_size=48), {}, OTHER),
    "other text": (edit("data/manifest.json:settings", corpus_digest="of another text"), {}, {},
                   "--data_dir was ", "is {}/data now", "corpus_digest"),
    "other network": (edit("m/hparams.json:hparams", **widths(intermediate_size=48)),
                      widths(intermediate_size=48), {}, "model.ckpt-12"),
    # A damaged model directory.
    "no checkpoints": (remove("m/checkpoints/*"), {}, {}, "came to step 12"),
    "record 3": (write("m/hparams.json", '{"hparams": 3}'), {}, {}, "hparams.json"),
    "record empty": (write("m/hparams.json", "{}"), {}, {}, "hparams.json"),
    "record cut": (write("m/hparams.json", "["), {}, EVALUATE, "hparams.json"),
    "all cut": (write("m/checkpoints/*.data-*"), {}, {}, *DATA),
    "all cut, evaluated": (write("m/checkpoints/*.data-*"), {}, EVALUATE, *DATA),
    # Hyper-parameters that do not fit the data, the devices or each other.
    "length": (None, {"max_seq_length": 24}, NEW, "`max_seq_length` should be 32"),
    "case": (None, {"do_lower_case": False}, NEW, "`do_lower_case` should be True"),
    "micro-batch": (None, {"train_batch_size": 6}, {**NEW, "micro_batch_size": 4},
                    "`micro_batch_size` should divide the 6 "),
    "devices": (None, {"train_batch_size": 5}, {**NEW, "strategy": "mirrored:2"},
                "divisible by the 2 devices"),
    # Nothing to start from.
    "typo": (None, {}, {**NEW, **EVALUATE}, "checkpoints"),
    "no steps": (None, {}, {**NEW, "continue_from": "{0}/m"}, "`num_train_steps`"),
    # The data.
    "other tokens": (vocabulary(), {}, NEW, "not the one the records were built with"),
    "other vocabulary": (vocabulary(known=True), {"num_train_steps": 20},
                         {**NEW, "continue_from": "{0}/m"}, "its vocabulary is not that of"),
    "no vocabulary": (remove("data/vocab.txt"), {}, NEW, "vocab.txt"),
    "nothing held out": (remove("data/heldout*"), {}, {**NEW, "do_eval": True},
                         "heldout_tfrecords"),
    "no records": (remove("data/pretrain_tfrecords"), {}, NEW, "no record files"),
    # Data to evaluate on.
    "evaluated digest": (edit("data/manifest.json", vocabulary_digest="of another"), {}, EVALUATE,
                         "vocab.txt"),
    "evaluated casing": (vocabulary(known=True, do_lower_case=False), {}, EVALUATE,
                         "do_lower_case"),
    "evaluated length": (None, {}, {**EVALUATE, "data_dir": "{1}/longer"},
                         "heldout_tfrecords", "max_seq_length=32"),
    "evaluated setting": (None, {"mask_prob": 0.2}, EVALUATE, "mask_prob: 0.15 there, 0.2 now"),
}  # fmt: skip


@pytest.mark.parametrize("name", REJECTED)
def test_rejected(name, folder, copies):
    change, hparams, options, *named = REJECTED[name]
    if change is not None:
        change(copies)
    options = {"data_dir": "{0}/data", "model_dir": "{0}/m", **options}
    for option, value in options.items():
        options[option] = value.format(copies, folder) if isinstance(value, str) else value
    before = sorted(copies.rglob("*")), content(copies)
    with pytest.raises(InputError) as error:
        run(hparams=hparams, **options)
    for text in named:
        assert text.format(copies) in str(error.value)
    assert (sorted(copies.rglob("*")), content(copies)) == before
