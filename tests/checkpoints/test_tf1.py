"""The original's files: which is taken, which networks they show, and what is rejected."""

import os
import shutil

import numpy as np
import pytest

from convbert.checkpoints.model_directory import load
from convbert.checkpoints.tf1_file import TensorFile, find_checkpoint, write_checkpoint
from convbert.common.errors import InputError
from convbert.model import named_size
from tests import tf1_support
from tests.damage_support import cut, delete
from tests.finetune.kinds_support import rejects
from tests.tf1_support import convert, golden_fields, golden_tensors, kept, write_original


def test_of_several_the_latest_is_taken_and_said(tmp_path):
    for step in (9, 100, 20):
        write_checkpoint(str(tmp_path / f"model.ckpt-{step}"), {"a": np.float32([step])})
    chosen, _ = find_checkpoint(str(tmp_path))  # `checkpoint` names what was written last
    assert chosen.endswith("model.ckpt-20")
    (tmp_path / "checkpoint").unlink()
    chosen, (note,) = find_checkpoint(str(tmp_path))
    assert chosen.endswith("model.ckpt-100")
    assert all(f"model.ckpt-{step}" in note for step in (9, 100, 20))
    (tmp_path / "checkpoint").write_text('model_checkpoint_path: "/elsewhere/model.ckpt-300"')
    assert find_checkpoint(str(tmp_path))[0] == chosen


GENERATOR = ("generator/", "generator_predictions/")


@pytest.mark.parametrize(
    ("scopes", "objective", "there"),
    [
        (["electra/", "discriminator_predictions/"], "replaced_token_detection", ["head"]),
        (["electra/", "generator_predictions/"], "masked_lm", ["head"]),
        (["electra/", *GENERATOR], "replaced_token_detection", ["generator", "generator_head"]),
    ],
)
def test_names_show_which_networks_there_are(tmp_path, scopes, objective, there):
    tensors, fields = kept(golden_tensors("sdconv"), *scopes), golden_fields("sdconv")
    if objective == "masked_lm":  # a head of the encoder's width
        tensors["generator_predictions/dense/kernel"] = np.ones([32, 16], np.float32)
    tensors = {k: v for k, v in tensors.items() if "/adam" not in k}
    source = write_original(tmp_path / "original", tensors, config=fields)
    convert(source, tmp_path / "model")
    found = load(str(tmp_path / "model"))
    assert found.hparams.objective.name == objective
    heads = ("head", "generator", "generator_head")
    assert [n for n in heads if getattr(found.objective, n, None) is not None] == there
    assert (found.optimizer, found.step) == (None, 1234)


@pytest.mark.parametrize("size", [None, "xlnet-tiny", "convbert-huge"])
def test_a_size_that_is_not_known(size, tmp_path):
    source = write_original(tmp_path / "original", golden_tensors("sdconv"))
    with pytest.raises(InputError):
        convert(source, tmp_path / "model", model_size=size)


def test_a_config_need_not_say_everything(tmp_path):
    """As ELECTRA's, which has none of ConvBERT's fields; a size fills the gaps."""
    fields = golden_fields("electra")
    for name in ("conv_type", "head_ratio", "linear_groups", "conv_kernel_size", "type_vocab_size"):
        fields.pop(name, None)
    source = write_original(tmp_path / "original", golden_tensors("electra"), config=fields)
    convert(source, tmp_path / "model")
    config = load(str(tmp_path / "model")).config
    assert (config.token_mixer, config.head_ratio, config.num_heads) == ("attention", 1, 4)
    assert config.type_vocab_size == named_size("electra-small").type_vocab_size


@pytest.mark.parametrize(
    "fields",
    [
        {"generator_hidden_size": 0.5},
        {"generator_hidden_size": 16},
        {"generator_hidden_size": None, "generator_hidden_size_multiplier": 0.5},
    ],
)
def test_a_config_gives_the_generator(fields, tmp_path):
    config = {**golden_fields("sdconv"), **fields}
    source = write_original(tmp_path / "original", golden_tensors("sdconv"), config=config)
    convert(source, tmp_path / "model")
    assert load(str(tmp_path / "model")).hparams.objective.generator_hidden_size == 0.5


PREFIX = str(tf1_support.GOLDEN / "sdconv" / tf1_support.CHECKPOINT)
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


# BERT, and parts of a discriminator with its generator.
OTHERS = ("bert/embeddings/word_embeddings", "generator_predictions/dense/kernel")
OTHERS += ("generator/encoder/layer_0/x",)


@pytest.mark.parametrize("name", OTHERS)
def test_other_models_are_rejected(tmp_path, name):
    tensors = {name: np.ones([97, 16], np.float32)}
    with rejects(name):
        convert(write_original(tmp_path / "original", tensors, config="sdconv"), tmp_path / "model")
    assert os.listdir(tmp_path) == ["original"]


PARTS = (".index", ".data-00000-of-00001")


@pytest.mark.parametrize("damaged", PARTS)
@pytest.mark.parametrize("damage", [cut, delete])
def test_damaged_files_are_named(tmp_path, damaged, damage):
    for part in PARTS:
        shutil.copyfile(PREFIX + part, tmp_path / f"{tf1_support.CHECKPOINT}{part}")
    damage(tmp_path / f"{tf1_support.CHECKPOINT}{damaged}")

    with rejects(str(tmp_path / tf1_support.CHECKPOINT)):
        file = TensorFile(str(tmp_path / tf1_support.CHECKPOINT))
        file.step()
        for name in {*file.shapes} - {"global_step"}:
            file.read(name)
