"""Original checkpoints that are rejected: the file and the tensor or field named, nothing left."""

import os
import shutil

import numpy as np
import pytest

from convbert.checkpoints.tf1_file import TensorFile
from tests.damage_support import cut
from tests.finetune.kinds_support import rejects
from tests.golden_support import CHECKPOINT, GOLDEN
from tests.tf1_support import convert, golden_fields, golden_tensors, write_original

PREFIX = str(GOLDEN / "sdconv" / CHECKPOINT)
DENSE = "electra/encoder/layer_1/output/dense"
GATE = "electra/encoder/layer_0/attention/self/conv_attn_gate/kernel"
MOMENT = "electra/embeddings/LayerNorm/gamma/adam_v"
WORDS = "electra/embeddings/word_embeddings"
WITH_NAN = np.zeros([64, 32], np.float32)
WITH_NAN[3, 4] = np.nan


TENSORS = [  # that are replaced, or with None removed
    ({f"{DENSE}/kernel": WITH_NAN}, f"{DENSE}/kernel"),
    ({f"{DENSE}/kernel": np.zeros([64, 16], np.float32)}, f"{DENSE}/kernel"),
    ({MOMENT: np.full(16, -0.5, np.float32)}, MOMENT),
    ({"global_step": np.int64(-5)}, "global_step"),
    ({GATE: np.zeros([32, 16], np.float32)}, GATE),
    ({WORDS: None}, WORDS),
    ({WORDS: np.zeros([97, 16], np.float16)}, WORDS),
    ({WORDS: np.zeros([96, 16], np.float32)}, WORDS),
]
FIELDS = [  # of the configuration, which contradict the tensors
    *(({"num_hidden_layers": 3}, "layer_2"), ({"conv_type": "lightconv"}, "conv_type")),
    ({"conv_type": "noconv"}, "attention/output/dense/kernel"),
    *(({"vocab_size": 30522}, "vocab_size"), ({"max_seq_length": 4000}, "max_seq_length")),
    ({"num_attention_heads": 2}, "num_attention_heads"),
    ({"generator_num_attention_heads": 16}, "generator_num_attention_heads"),
]


@pytest.mark.parametrize(
    ("tensors", "fields", "named"),
    [
        *((tensors, {}, named) for tensors, named in TENSORS),
        *(({}, fields, named) for fields, named in FIELDS),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_wrong_is_named_and_nothing_is_left(tmp_path, tensors, fields, named):
    tensors = {**golden_tensors("sdconv"), **tensors}
    tensors = {name: value for name, value in tensors.items() if value is not None}
    fields = {**golden_fields("sdconv"), **fields}
    source = write_original(tmp_path / "original", tensors, config=fields)
    with rejects(source, named):
        convert(source, tmp_path / "model")
    assert os.listdir(tmp_path) == ["original"]


@pytest.mark.parametrize(
    ("names", "kind"),
    [
        (["bert/embeddings/word_embeddings", "cls/x"], "bert/embeddings/word_embeddings"),
        # Parts of a discriminator with its generator.
        (["generator_predictions/dense/kernel"], "generator_predictions/dense/kernel"),
        (["generator/encoder/layer_0/x"], "generator/encoder/layer_0/x"),
    ],
    ids=str,
)
def test_other_models_are_rejected(tmp_path, names, kind):
    tensors = {name: np.ones([97, 16], np.float32) for name in names}
    with rejects(kind):
        convert(write_original(tmp_path / "original", tensors, config="sdconv"), tmp_path / "model")
    assert os.listdir(tmp_path) == ["original"]


DATA = f"{CHECKPOINT}.data-00000-of-00001"


@pytest.mark.parametrize(
    "damage",
    [
        lambda folder: (folder / f"{CHECKPOINT}.index").unlink(),
        lambda folder: cut(folder / f"{CHECKPOINT}.index"),
        lambda folder: (folder / DATA).unlink(),
        lambda folder: cut(folder / DATA),
    ],
)
def test_damaged_files_are_named(tmp_path, damage):
    for part in (".index", ".data-00000-of-00001"):
        shutil.copyfile(PREFIX + part, tmp_path / f"{CHECKPOINT}{part}")
    damage(tmp_path)

    def read():
        file = TensorFile(str(tmp_path / CHECKPOINT))
        file.step()
        for name in {*file.shapes} - {"global_step"}:
            file.read(name)

    with rejects(str(tmp_path / CHECKPOINT)):
        read()
