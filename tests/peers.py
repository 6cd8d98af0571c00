"""Runs torch and transformers in their own process: beside TensorFlow they crash. `ask` runs one of
the functions below there, by the Python of the variable PEERS_PYTHON, or else by this one."""

import functools
import os
import pathlib
import pickle
import subprocess
import sys
import traceback

import numpy as np

PYTHON = os.environ.get("PEERS_PYTHON", sys.executable)
_LACKS = "import sys, importlib.util as u; sys.exit(not all(map(u.find_spec, sys.argv[1:])))"

if __name__ == "__main__":
    import torch
    import transformers


def need(*modules: str) -> None:
    """Skips the test where the peers' Python lacks these."""
    import pytest  # which it may lack, too

    if subprocess.run([PYTHON, "-c", _LACKS, *modules], check=False).returncode:
        pytest.skip("needs the extra `peers`")


def ask(function, *given, **options):
    """Calls a function of this module in the peers' process and returns its result."""
    process = _process()
    pickle.dump((function.__name__, given, options), process.stdin)
    process.stdin.flush()
    error, found = pickle.load(process.stdout)
    if error:
        raise AssertionError(error)
    return found


@functools.cache
def _process() -> subprocess.Popen:
    # More threads wait for each other, which costs more than such small networks.
    return subprocess.Popen(
        [PYTHON, "-m", "tests.peers"],
        cwd=pathlib.Path(__file__).parents[1],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )


def _answer() -> None:
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever libraries print goes elsewhere
    while True:
        try:
            name, given, options = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        try:
            answer = None, globals()[name](*given, **options)
        except Exception:
            answer = traceback.format_exc(), None
        pickle.dump(answer, answers)
        answers.flush()


def _arrays(found) -> dict[str, np.ndarray]:
    return {name: x.detach().numpy() for name, x in found.items() if isinstance(x, torch.Tensor)}


def _features(batch):
    """Our features under transformers' names."""
    names = {"input_ids": "input_ids", "attention_mask": "input_mask"}
    names["token_type_ids"] = "segment_ids"
    there = {name: ours for name, ours in names.items() if ours in batch}
    return {name: torch.from_numpy(batch[ours]).long() for name, ours in there.items()}


def _model(class_name, config_class, fields):
    config = getattr(transformers, config_class)(**fields)
    return getattr(transformers, class_name)(config)


def _randomize(model, seed: int):
    """Weights whose products keep the size of what enters them, whatever the width; no zeros."""
    draw = torch.Generator().manual_seed(seed)
    for name, weight in model.named_parameters():
        noise = torch.randn(weight.shape, generator=draw)
        if name.endswith(("LayerNorm.weight", "norm.weight")):
            weight.data = 1.0 + 0.2 * noise
        elif name.endswith("bias"):
            weight.data = 0.2 * noise
        elif "embeddings." in name:
            weight.data = weight.shape[1] ** -0.5 * noise
        else:  # [out, in], or grouped [G, in / G, out / G], or depthwise [D, 1, K]
            inputs = weight.shape[2] if "depthwise" in name else weight.shape[1]
            weight.data = inputs**-0.5 * noise
    return model


def make(class_name, config_class, fields, folder) -> None:
    _randomize(_model(class_name, config_class, fields), 1).save_pretrained(folder)


def make_electra(fields, generator_fields, folder) -> None:
    """Writes an ELECTRA, and its generator with the same embeddings."""
    model = _randomize(_model("ElectraForPreTraining", "ElectraConfig", fields), 1)
    generator = _randomize(_model("ElectraForMaskedLM", "ElectraConfig", generator_fields), 2)
    generator.electra.embeddings.load_state_dict(model.electra.embeddings.state_dict())
    model.save_pretrained(folder)
    generator.save_pretrained(folder / "generator")


def make_xlnet(fields, folder) -> None:
    torch.manual_seed(0)
    model = _model("XLNetLMHeadModel", "XLNetConfig", fields)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.3 * torch.randn_like(parameter)
    model.save_pretrained(folder)


def make_like(class_name, folder) -> None:
    """Writes a model of random weights in the place of another of its shape."""
    torch.manual_seed(0)
    model = getattr(transformers, class_name)(transformers.AutoConfig.from_pretrained(folder))
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    model.save_pretrained(folder)


def outputs(class_name, folder, batch):
    """The class of a folder's model, what loading it reports, its labels, what it computes."""
    model, report = getattr(transformers, class_name).from_pretrained(
        folder, output_loading_info=True
    )
    found = {"class": type(model).__name__, "labels": tuple(model.config.id2label.values())}
    for name in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        found[name] = set(report[name])
    with torch.no_grad():
        encoded = model.eval().base_model(**_features(batch), output_hidden_states=True)
        found["states"] = [state.numpy() for state in encoded.hidden_states]
        arrays = _arrays(model(**_features(batch)))
    return {**found, "sequence": encoded.last_hidden_state.numpy(), "outputs": arrays}


def xlnet_outputs(folder, batches, permitted, targets):
    """Hidden states of every batch; queries and logits of the first; tensors that do not fit."""
    model, report = transformers.XLNetLMHeadModel.from_pretrained(folder, output_loading_info=True)
    model.eval()

    def features(batch):
        found = _features(batch)
        return {**found, "attention_mask": found["attention_mask"].float()}

    states = []
    with torch.no_grad():
        for batch in batches:
            output = model.transformer(**features(batch), output_hidden_states=True)
            states.append([x.numpy() for x in (*output.hidden_states, output.last_hidden_state)])
        given = {
            **features(batches[0]),
            "perm_mask": torch.tensor(1.0 - permitted).float(),
            "target_mapping": torch.tensor(np.eye(permitted.shape[-1])[targets]).float(),
            "use_mems": False,
        }
        queries = model.transformer(**given).last_hidden_state.numpy()
        logits = model(**given).logits.numpy()
    return states, (queries, logits), [*report["missing_keys"], *report["unexpected_keys"]]


def sentence_vectors(folder, texts, size) -> np.ndarray:
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(str(folder), device="cpu").encode(texts, batch_size=size)


def ranking_loss(columns, scale):
    """Returns MultipleNegativesRankingLoss of first and second texts and negatives; gradients."""
    from sentence_transformers.losses import MultipleNegativesRankingLoss

    columns = [torch.tensor(column, requires_grad=True) for column in columns]
    loss = MultipleNegativesRankingLoss(None, scale=scale).compute_loss_from_embeddings(
        columns, None
    )
    loss.backward()
    return loss.item(), [column.grad.numpy() for column in columns]


def state(class_name, folder) -> dict[str, np.ndarray]:
    return _arrays(getattr(transformers, class_name).from_pretrained(folder).state_dict())


def make_tokenizer(ids, folder):
    transformers.BertTokenizer(ids, do_lower_case=True).save_pretrained(folder)


def tokenized(folder, texts, whole):
    """Returns a folder's tokenizer's ids of texts, and of two as a sequence."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    ids = [tokenizer(text, add_special_tokens=False)["input_ids"] for text in texts]
    names = ("mask_token_id", "pad_token_id", "model_max_length")
    return {
        "class": type(tokenizer).__name__,
        "ids": ids,
        "decoded": [tokenizer.decode(each) for each in ids],
        "whole": dict(tokenizer(*whole)),
        **{name: getattr(tokenizer, name) for name in names},
    }


if __name__ == "__main__":
    _answer()
