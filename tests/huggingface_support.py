"""Loads what transformers computed (tests/golden/huggingface/, see its README); damages copies."""

import functools
import json
import pathlib
import shutil

import numpy as np
import tensorflow as tf
from safetensors.numpy import load_file, save_file

from convbert.checkpoints import huggingface
from convbert.checkpoints.model_directory import Conversion, Options, describe_pretraining
from convbert.data.vocabulary import Vocabulary
from convbert.model import DiscriminatorHead, EncoderConfig
from convbert.pretrain.load import SpecialIds
from tests import tf1_support
from tests.model_support import TINY, randomize

FOLDER = pathlib.Path(__file__).parent / "golden" / "huggingface"
NAMES = ("convbert", "convbert_grouped", "electra", "bert")
PADDED = ("padded convbert", "padded electra", "padded bert")
V, ROWS = 137, 144  # tokens; rows of padded embeddings
WEIGHTS = "model.safetensors"
TENSOR_TOLERANCE = 2e-5

_SIZES = {"vocab_size": V, "embedding_size": 12, "hidden_size": 32, "num_attention_heads": 8}
SPAN = TINY.replace(**_SIZES, intermediate_size=64, max_position_embeddings=24, mask_padding=False)
PLAIN = SPAN.replace(token_mixer="attention", head_ratio=1, conv_kernel_size=9)


def read(folder: str | pathlib.Path, **options) -> Conversion:
    return huggingface.read(str(folder), Options(**options))


@functools.cache
def load(name: str) -> Conversion:
    """One of these folders, read; do not change its variables."""
    return read(FOLDER / name)


reference = functools.cache(lambda name: tf1_support.reference(f"huggingface/{name}"))


def features(name: str) -> dict[str, tf.Tensor]:
    arrays = reference(name)
    return {key: tf.constant(arrays[key]) for key in ("input_ids", "input_mask", "segment_ids")}


def outputs(objective, batch: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    """The last states and every token's logits, of the encoder and of a generator."""
    sequence = objective.encoder(batch).sequence
    found = {"sequence": sequence}
    if objective.head is not None:
        found["logits"] = _logits(objective.head, sequence)
    if getattr(objective, "generator", None) is not None:
        small = objective.generator(batch).sequence
        found["generator_sequence"] = small
        found["generator_logits"] = _logits(objective.generator_head, small)
    return found


def _logits(head, sequence: tf.Tensor) -> tf.Tensor:
    if isinstance(head, DiscriminatorHead):
        return head(sequence)
    B, S = sequence.shape[:2]
    return head(sequence, tf.tile(tf.range(S)[None], [B, 1]))


def assert_close(actual, expected) -> None:
    assert actual.shape == expected.shape
    np.testing.assert_allclose(actual, expected, rtol=0, atol=TENSOR_TOLERANCE)


def tensors(folder: pathlib.Path) -> dict[str, np.ndarray]:
    loaded = {}
    for path in sorted(folder.glob("*.safetensors")):
        loaded.update(load_file(path))
    return loaded


def change_json(path: pathlib.Path, **changes) -> None:
    """Sets fields of a JSON file; those set to "absent" are taken out."""
    fields = {**json.loads(path.read_text(encoding="utf-8")), **changes}
    fields = {name: value for name, value in fields.items() if value != "absent"}
    path.write_text(json.dumps(fields), encoding="utf-8")


def change_tensors(folder: pathlib.Path, change) -> None:
    """Rewrites `model.safetensors` with what `change` makes of its dict."""
    loaded = load_file(folder / WEIGHTS)
    save_file(change(loaded), folder / WEIGHTS)


def copied(name: str, tmp_path: pathlib.Path) -> pathlib.Path:
    folder = tmp_path / name
    shutil.copytree(FOLDER / name, folder)
    return folder


def conversion(config: EncoderConfig, **values) -> Conversion:
    """A model of ours with random weights and these hyper-parameters, as if it were loaded."""
    return random_conversion(config, Vocabulary(load("bert").vocabulary.tokens), **values)


def random_conversion(config, vocabulary: Vocabulary, scale: float = 0.5, **values) -> Conversion:
    """The same of any architecture and vocabulary."""
    hparams = describe_pretraining(config, vocabulary, **values)
    objective = hparams.build_objective(config, SpecialIds(vocabulary))
    for seed, name in enumerate(hparams.objective.networks):
        if getattr(objective, name, None) is not None:
            randomize(getattr(objective, name), seed, scale)
    return Conversion(config, hparams, vocabulary, objective, step=7)


def added_entry(content: str, **flags) -> dict:
    """An added token as `tokenizer_config.json` describes it."""
    default = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": True}
    return {"content": content, **default, "special": False, **flags}


def with_rows(tensor: np.ndarray) -> np.ndarray:
    """The tensor of a vocabulary, with rows of padding; biases there would win every prediction."""
    if tensor.shape[0] != V:
        return tensor
    draw = np.random.default_rng(5)  # the same rows for the generator, which shares the embeddings
    extra = draw.normal(0, 2, [ROWS - V, *tensor.shape[1:]]).astype(tensor.dtype)
    return np.concatenate([tensor, extra + 1000.0 * (tensor.ndim == 1)])


def padded_copy(name: str, tmp_path: pathlib.Path) -> pathlib.Path:
    """A folder whose embeddings have more rows than its tokenizer has entries."""
    folder = copied(name, tmp_path)
    for part in (folder, *folder.glob("generator")):
        change_json(part / "config.json", vocab_size=ROWS)
        change_tensors(part, lambda held: {name: with_rows(t) for name, t in held.items()})
    return folder
