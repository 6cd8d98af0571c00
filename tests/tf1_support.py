"""Original checkpoints for tests: the golden ones (tests/golden/README.md), changed, or random."""

import json
import pathlib
import shutil

import numpy as np
import tensorflow as tf

from convbert.checkpoints import names
from convbert.checkpoints.formats import from_elsewhere
from convbert.checkpoints.model_directory import Options
from convbert.checkpoints.tf1_file import write_checkpoint
from convbert.data.vocabulary import SPECIAL_TOKENS

GOLDEN = pathlib.Path(__file__).parent / "golden"
MODELS = ("sdconv", "sdconv_k5", "sdconv_grouped", "electra", "bottleneck")
CHECKPOINT = "model.ckpt-0"
SPECIAL_IDS = {"cls": 2, "sep": 3, "mask": 4}


def read_tensors(prefix) -> dict[str, np.ndarray]:
    reader = tf.train.load_checkpoint(str(prefix))
    return {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}


def golden_tensors(name: str, step: int = 1234) -> dict[str, np.ndarray]:
    """The tensors of a golden folder at another step, with moments that are not zero."""
    tensors = read_tensors(GOLDEN / name / CHECKPOINT)
    draw = np.random.default_rng(0)
    for key in sorted(tensors):
        if key.endswith("/adam_m"):
            tensors[key] = draw.normal(0, 1e-2, tensors[key].shape).astype(np.float32)
        elif key.endswith("/adam_v"):
            tensors[key] = draw.uniform(1e-5, 1e-3, tensors[key].shape).astype(np.float32)
    tensors["global_step"] = np.int64(step)
    return tensors


def random_tensors(hparams, config, seed: int = 0) -> dict[str, np.ndarray]:
    objective = hparams.build_objective(config, SPECIAL_IDS)
    draw = np.random.default_rng(seed)
    return {
        name: draw.normal(0, 0.1, variable.shape).astype(np.float32)
        for name, variable in original_variables(objective).items()
    }


def original_variables(objective) -> dict[str, tf.Variable]:
    return {name: slot.variables[0] for name, slot in names.original_slots(objective).items()}


def write_original(folder, tensors, *, config=None, vocab_size=97, name="model.ckpt-1234") -> str:
    """Writes an original's folder: a checkpoint called `name`, `vocab.txt`, perhaps `config.json`.
    `config` has the fields of `config.json`, or is the golden folder it is copied from."""
    folder.mkdir(parents=True, exist_ok=True)
    write_checkpoint(str(folder / name), tensors)
    words = [f"w{i}" for i in range(len(SPECIAL_TOKENS), vocab_size)]
    (folder / "vocab.txt").write_text("\n".join([*SPECIAL_TOKENS, *words]) + "\n")
    if isinstance(config, str):
        shutil.copyfile(GOLDEN / config / "config.json", folder / "config.json")
    elif config is not None:
        (folder / "config.json").write_text(json.dumps(config))
    return str(folder)


def golden_fields(name: str) -> dict:
    return json.loads((GOLDEN / name / "config.json").read_text(encoding="utf-8"))


def convert(source, output, **options) -> list[str]:
    return from_elsewhere("tf1", str(source), str(output), Options(**options))


def kept(tensors: dict[str, np.ndarray], *scopes: str) -> dict[str, np.ndarray]:
    return {k: v for k, v in tensors.items() if k.startswith(scopes) or k == "global_step"}


def assert_equal_tensors(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    """Names, types, shapes and every bit."""
    assert set(found) == set(expected)
    for name, value in expected.items():
        assert found[name].dtype == value.dtype, name
        assert found[name].shape == value.shape, name
        np.testing.assert_array_equal(found[name], value, err_msg=name)


def reference(name: str) -> dict[str, np.ndarray]:
    with np.load(GOLDEN / name / "reference.npz") as arrays:
        return dict(arrays)


def features(reference: dict[str, np.ndarray], ids_name: str) -> dict[str, tf.Tensor]:
    """The encoder's features with the ids of that name in the reference, int32 [B, S]."""
    names = {"input_ids": ids_name, "input_mask": "input_mask", "segment_ids": "segment_ids"}
    return {name: tf.constant(reference[source]) for name, source in names.items()}


def masked_batch(reference: dict[str, np.ndarray]) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
    """The batch as the original masked it, and the tokens [B, P] that it sampled."""
    names = ("input_mask", "segment_ids", "input_ids", "masked_input_ids", "masked_lm_positions")
    names += ("masked_lm_ids", "masked_lm_weights")
    batch = {name: tf.constant(reference[name]) for name in names}
    corrupted = tf.constant(reference["corrupted_input_ids"])
    return batch, tf.gather(corrupted, batch["masked_lm_positions"], batch_dims=1)
