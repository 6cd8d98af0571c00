"""Tiny models as pre-training and fine-tuning leave them, and SavedModels of them."""

import dataclasses
import json

import numpy as np
import tensorflow as tf

from convbert.data.text.layout import TextLayout
from convbert.data.tokenizers import create_tokenizer
from convbert.data.vocabulary import Vocabulary
from convbert.finetune.declaration import Task
from convbert.finetune.evaluations import WEIGHTS_NAME
from convbert.finetune.hparams import resolve_hparams
from convbert.finetune.learner import Predictor
from convbert.finetune.objective import FineTuning
from convbert.finetune.task_data import Split
from convbert.model import EncoderConfig, build_backbone
from convbert.pretrain import hparams as pretraining_hparams
from convbert.pretrain.load import SpecialIds
from convbert.serving.description import read_description
from convbert.serving.signatures.signature import Tensor
from convbert.training.distribution import create_strategy
from convbert.training.run_record import TASK_FILE
from tests.finetune.squad_support import small_file, vocabulary
from tests.model_support import TINY, random_features, randomize

WORDS = vocabulary()  # characters, punctuation, a few words; cased and accented ones among them
LABELS = {"classification": ("bad", "fair", "good"), "multi_label": ("calm", "funny", "long")}
LABELS |= {"tagging": ("A", "B", "C", "D"), "multiple_choice": ("A", "B", "C")}
COLUMNS = {
    "classification": {"text_a": "review", "label": "verdict"},
    "multi_label": {"text_a": "review", "label": "topics"},
    "regression": {"text_a": "review", "label": "stars"},
    "tagging": {"words": "tokens", "tags": "upos"},
    "span": {},
    "embedding": {"text_a": "asked", "text_b": "reply"},
    "reranking": {"query": "asked", "candidates": "replies", "relevance": "grades"},
    "multiple_choice": {"context": "story", "question": "asked", "options": "ends"},
}
COLUMNS["multiple_choice"]["label"] = "right"


def task(kind: str, pair: bool = False, **fields) -> Task:
    """A declaration of a task of this kind; its files need not exist."""
    columns = dict(COLUMNS[kind])
    if pair:
        columns["text_b"] = "reply"
    metric = {"regression": "pearson", "tagging": "token_accuracy", "span": "f1"}
    metric |= {"embedding": "mrr", "reranking": "mrr@10"}
    values = {"files": {"train": "train.jsonl", "dev": "dev.jsonl"}, "columns": columns}
    values |= {"format": "squad" if kind == "span" else "jsonl", "test": ()}
    values |= {"metrics": (metric.get(kind, "accuracy"),), "labels": LABELS.get(kind, ()), **fields}
    return Task(f"own_{kind}", kind, **values)


def labelled(own: Task) -> list[dict]:
    """60 rows of a file of this task, which is not of spans; labels depend on the words."""
    words = ("the", "city", "was", "Café", "born", "in", "1995", "who?", "what", "北京")
    draw, rows = np.random.default_rng(0), []
    for _ in range(60):
        a, b = (draw.choice(words, draw.integers(1, 14)).tolist() for _ in range(2))
        options = [" ".join(draw.choice(words, 3)) for _ in range(2)]
        place = int(draw.integers(3))
        options.insert(place, " ".join(a[:2]))
        values = {"text_a": " ".join(a), "text_b": " ".join(b), "words": a + b}
        values["tags"] = ["A" if word.isdigit() else "BCD"[len(word) % 3] for word in a + b]
        values |= {"context": " ".join(a), "question": "who?", "options": options}
        values["label"] = {
            "classification": "good" if "city" in a else "fair" if "born" in a else "bad",
            "regression": 1 + 4 * min(1, len(a) / (len(b) + 9)),
            "multiple_choice": "ABC"[place],
        }.get(own.kind)
        rows.append({column: values[role] for role, column in own.columns.items()})
    return rows


def write_labelled(path, own: Task) -> None:
    if own.kind != "span":
        path.write_text("".join(json.dumps(row) + "\n" for row in labelled(own)))
        return
    small_file(path)
    content = json.loads(path.read_text())
    for paragraph in content["data"][0]["paragraphs"]:
        paragraph["qas"] = [item for item in paragraph["qas"] if not item["is_impossible"]]
    path.write_text(json.dumps(content))


def inputs_of(folder) -> dict[str, dict[str, Tensor]]:
    """Name of a signature -> the description of each of its inputs."""
    described = read_description(str(folder))["signatures"]
    return {
        name: {key: Tensor(**own) for key, own in item["inputs"].items()}
        for name, item in described.items()
    }


def asked(inputs: dict[str, Tensor], texts) -> dict[str, np.ndarray]:
    """Texts, in another order for each, as the inputs of a signature: [B], or lists of two."""
    found = {}
    for place, (name, tensor) in enumerate(inputs.items()):
        values = np.roll(np.array(texts, object), -place)
        found[name] = np.stack([values, values[::-1]], 1) if len(tensor.axes) == 2 else values
    return found


def fine_tuned(folder, own: Task, words=WORDS, *, seed=0, hparams=None, tiny=TINY, **config):
    """Writes the folder of a run with random weights, as finetune/trial.py leaves it."""
    config = tiny.replace(vocab_size=words.size, **config)
    length = {"max_seq_length": 24}
    length |= {"max_query_length": 8, "doc_stride": 6} if own.kind == "span" else {}
    hparams = resolve_hparams({**length, **(hparams or {})}, own, config)
    encoder = build_backbone(config)
    objective = FineTuning(encoder, own.plugin.head(own, config, hparams))
    randomize(encoder, seed, scale=0.3)
    randomize(objective.head, seed + 1, scale=0.2 if own.kind == "span" else 0.5)
    if own.kind in ("classification", "multi_label", "tagging"):
        # Or one label would be the answer to everything: the mean score of each becomes 0.
        output = encoder(random_features(20, 20, range(2, 22), config.vocab_size))
        states = output.sequence if own.kind == "tagging" else output.pooled
        scores = tf.reshape(objective.head(states), [-1, len(own.labels)])
        objective.head.dense.bias.assign_sub(tf.reduce_mean(scores, 0))
    recorded = {"task": {**own.to_json()}, "encoder": config.to_json()}
    del recorded["task"]["folders"]
    describe(folder, config, words, dataclasses.asdict(hparams) | recorded)
    (folder / TASK_FILE).write_text(json.dumps(own.to_json()))
    save(folder, tf.train.Checkpoint(objective=objective), WEIGHTS_NAME)
    return objective, hparams, words


def describe(folder, config: EncoderConfig, words: Vocabulary, hparams: dict) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    config.save(str(folder))
    words.save(folder)
    record = {"hparams": {**hparams, "vocabulary": words.digest}, "run_settings": {}}
    (folder / "hparams.json").write_text(json.dumps(record))


def save(folder, checkpoint: tf.train.Checkpoint, name: str) -> None:
    place = str(folder / "checkpoints")
    tf.train.CheckpointManager(checkpoint, place, 1, checkpoint_name=name).save(7)


def evaluated(objective, own: Task, examples: list, words: Vocabulary, hparams):
    """Returns sequences, head outputs and answers as run_finetuning.py computes them."""
    layout = TextLayout(create_tokenizer(words), hparams.max_seq_length)
    encoded = own.plugin.encode(own, examples, layout, hparams)
    strategy, split = create_strategy("one_device"), Split(examples, encoded)
    size = 8 * own.plugin.group_size(own)
    outputs = Predictor(objective, own, size, hparams, strategy)(split)
    return encoded, outputs, own.plugin.answers(own, split, outputs, hparams)


def sequences_of(encoded, numbers, S):
    """Sequences of encoded examples as features, int32 [B, S]."""
    ids, mask, segments = (np.zeros([len(numbers), S], np.int32) for _ in range(3))
    for place, number in enumerate(numbers):
        tokens = slice(*encoded.row_splits[number : number + 2])
        length = tokens.stop - tokens.start
        ids[place, :length] = encoded.tokens["input_ids"][tokens]
        segments[place, :length] = encoded.tokens["segment_ids"][tokens]
        mask[place, :length] = 1
    names = ("input_ids", "input_mask", "segment_ids")
    return {name: tf.constant(value) for name, value in zip(names, (ids, mask, segments))}


def assert_equal(received, expected, rtol: float) -> None:
    """Of tensors by name: floats are close, others equal."""
    assert set(received) == set(expected)
    for name, value in expected.items():
        one, other = np.asarray(received[name]), np.asarray(value)
        if other.dtype.kind == "f":
            np.testing.assert_allclose(one, other, rtol, rtol, err_msg=name)
        else:
            np.testing.assert_array_equal(one, other.astype(one.dtype), err_msg=name)


def padded(rows, width=None) -> tf.Tensor:
    """Lists of texts as a signature takes them: [B, width], filled up with empty strings."""
    width = width or max(map(len, rows))
    return tf.constant([[*row, *[""] * (width - len(row))] for row in rows])


def pretrained(folder, words: Vocabulary = WORDS, *, parts=None, seed=0, tiny=TINY, **hparams):
    """Writes a pre-trained model of random weights, as run_pretraining.py leaves it; returns its
    objective. The checkpoint holds these `parts`, such as "encoder", by default everything."""
    overrides = dataclasses.asdict(tiny.replace(vocab_size=words.size, num_hidden_layers=1))
    overrides |= hparams.pop("overrides", {})
    values = {"model_size": "convbert-tiny", "model_hparam_overrides": overrides}
    values |= {"generator_hidden_size": 0.5, "max_seq_length": 24, **hparams}
    hparams = pretraining_hparams.resolve_hparams(values, words.size)
    config = pretraining_hparams.encoder_config(hparams, words.size)
    objective = hparams.build_objective(config, SpecialIds(words))
    networks = {
        name: getattr(objective, name)
        for name in hparams.objective.networks
        if getattr(objective, name, None) is not None
    }
    for number, network in enumerate(networks.values()):
        randomize(network, seed + number, scale=0.3)
    describe(folder, config, words, hparams.as_json())
    kept = {name: network for name, network in networks.items() if parts is None or name in parts}
    save(folder, tf.train.Checkpoint(objective=tf.train.Checkpoint(**kept)), "model.ckpt")
    return objective


def tuned(own: Task, *words, **settings):
    return lambda folder: fine_tuned(folder, own, *words, **{"num_hidden_layers": 1, **settings})


def trained(*words, **hparams):
    return lambda folder: pretrained(folder, *words, **hparams)
