"""Slow: transformers' XLNet gives the same outputs, before and after a conversion.

    python -m pytest -m slow -s tests/checkpoints/test_xlnet_live.py

prints the largest differences.

Needs `python -m pip install -r requirements-peers.txt -c constraints.txt`, 6 GiB of memory and
about two minutes on two cores; without these packages it is skipped and says so.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # read when torch is imported

import numpy as np
import pytest

from checkpoints.formats import from_elsewhere
from checkpoints.model_directory import Options, load
from checkpoints.xlnet import huggingface
from model import SIZES
from tests.tf1_support import assert_equal_tensors
from tests.xlnet_support import TINY, V, conversion, original_tensors, spiece_model, write_original

NEEDED = "needs requirements-peers.txt"
torch = pytest.importorskip("torch", reason=NEEDED)
transformers = pytest.importorskip("transformers", reason=NEEDED)

pytestmark = pytest.mark.slow  # see above for what it needs

TOLERANCE = 2e-5
B, S, P = 3, 9, 4
LENGTHS = (9, 5, 7)
CONFIGS = {
    "toy": TINY,
    "toy-gelu": TINY.replace(hidden_act="gelu", layer_norm_eps=1e-3),
    "toy-clamped": TINY.replace(clamp_length=3, untie_biases=False),
    "toy-wide": TINY.replace(hidden_size=48, num_attention_heads=3, num_hidden_layers=4),
    "xlnet-tiny": SIZES["xlnet-tiny"].replace(vocab_size=V),
    "base-width": SIZES["xlnet-base"].replace(vocab_size=V, num_hidden_layers=3),
    "xlnet-base": SIZES["xlnet-base"].replace(vocab_size=V),
    "large-width": SIZES["xlnet-large"].replace(vocab_size=V, num_hidden_layers=2),
}


@pytest.fixture(autouse=True)
def _one_thread():
    """Threads that wait for each other cost more than such networks."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def batch():
    """Features with three segments, padding on the right; and on the left."""
    draw = np.random.default_rng(0)
    mask = (np.arange(S) < np.array(LENGTHS)[:, None]).astype(np.int32)
    right = {
        "input_ids": draw.integers(9, V, [B, S]).astype(np.int32) * mask,
        "input_mask": mask,
        "segment_ids": np.where(mask == 1, draw.integers(0, 3, [B, S]), 3).astype(np.int32),
    }
    left = {
        name: np.stack([np.roll(row, S - n) for row, n in zip(rows, LENGTHS, strict=True)])
        for name, rows in right.items()
    }
    return right, left


def to_torch(features):
    names = {"input_ids": "input_ids", "attention_mask": "input_mask"}
    names |= {"token_type_ids": "segment_ids"}
    found = {theirs: torch.tensor(features[ours]).long() for theirs, ours in names.items()}
    return {**found, "attention_mask": found["attention_mask"].float()}


def small_weights(made):
    """Weights of about the size of trained ones: the larger the width, the smaller."""
    scale = 0.5 * (16 / made.config.hidden_size) ** 0.5
    for variable in made.objective.encoder.trainable_variables:
        value = variable.numpy() * scale
        variable.assign(1.0 + value if "gamma" in variable.name else value)
    return made


def assert_equal_outputs(name, model, encoder, head):
    """Of both streams, with padding on either side, and with memory; prints the differences."""
    pairs = {"states": [], "pooled": [], "query stream": [], "logits": []}
    for features in batch():
        real = features["input_mask"] == 1
        with torch.no_grad():
            output = model.transformer(**to_torch(features), output_hidden_states=True)
        found = encoder(features)
        states = (found.embedding_output, *found.hidden_states)
        for ours, theirs in zip(states, output.hidden_states, strict=True):
            pairs["states"].append((ours.numpy()[real], theirs.numpy()[real]))
        last = [np.flatnonzero(row)[-1] for row in features["input_mask"]]
        expected = output.last_hidden_state.numpy()[np.arange(B), last]
        pairs["pooled"].append((found.pooled.numpy(), expected))

    draw, features = np.random.default_rng(1), batch()[0]
    rank = np.stack([draw.permutation(S) for _ in range(B)])
    rank[:, 0] = -1  # a real token that all see
    permitted = (rank[:, :, None] > rank[:, None]) | (rank[:, None] == -1)
    targets = np.stack([draw.choice(np.arange(1, n), P, replace=False) for n in LENGTHS])
    memory = [draw.normal(size=[B, 6, encoder.hidden_size]).astype(np.float32) for _ in states[1:]]
    for past in (None, memory):
        given = {
            **to_torch(features),
            "perm_mask": torch.tensor(1.0 - permitted).float(),
            "target_mapping": torch.tensor(np.eye(S, dtype=np.float32)[targets]),
            "mems": past and [torch.tensor(each).transpose(0, 1) for each in past],
            "use_mems": bool(past),
        }
        with torch.no_grad():
            queries, logits = model.transformer(**given).last_hidden_state, model(**given).logits
        places = targets.astype(np.int32)
        found = encoder.two_streams(features, permitted, places, head.mask_embedding, memory=past)
        pairs["query stream"].append((found.queries.numpy(), queries.numpy()))
        pairs["logits"].append((head(found.queries).numpy(), logits.numpy()))
    largest = {
        what: max(np.abs(ours - theirs).max() for ours, theirs in compared)
        for what, compared in pairs.items()
    }
    print(f"\n{name}:", ", ".join(f"{what} {value:.1e}" for what, value in largest.items()))
    assert max(largest.values()) <= TOLERANCE


@pytest.mark.parametrize("name", CONFIGS)
def test_theirs_of_ours(name, tmp_path):
    """What we write is loaded without a tensor missing or left over."""
    made = small_weights(conversion(CONFIGS[name]))
    huggingface.write(made, str(tmp_path))
    model, report = transformers.XLNetLMHeadModel.from_pretrained(
        tmp_path, output_loading_info=True
    )
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    model.eval()
    assert_equal_outputs(name, model, made.objective.encoder, made.objective.head)


@pytest.mark.parametrize("act", ["gelu", "gelu_new", "relu"])
def test_ours_of_theirs(act, tmp_path):
    """Also after both directions, to the bit."""
    torch.manual_seed(0)
    fields = {"vocab_size": V, "d_model": 32, "n_layer": 3, "n_head": 4, "d_inner": 40}
    config = transformers.XLNetConfig(**fields, ff_activation=act)
    model = transformers.XLNetLMHeadModel(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.3 * torch.randn_like(parameter)
    model.save_pretrained(tmp_path / "theirs")
    (tmp_path / "theirs" / "spiece.model").write_bytes(spiece_model())
    from_elsewhere("huggingface", str(tmp_path / "theirs"), str(tmp_path / "ours"), Options())
    back = load(str(tmp_path / "ours"))
    assert_equal_outputs(f"of theirs, {act}", model, back.objective.encoder, back.objective.head)
    huggingface.write(back, str(tmp_path))
    again = transformers.XLNetLMHeadModel.from_pretrained(tmp_path)
    before, after = ({k: v.numpy() for k, v in m.state_dict().items()} for m in (model, again))
    assert_equal_tensors(after, before)


def test_theirs_of_an_original(tmp_path):
    """Original -> ours -> theirs: transformers computes what is computed here."""
    source = write_original(tmp_path / "original", original_tensors())
    from_elsewhere("tf1", source, str(tmp_path / "ours"), Options())
    back = load(str(tmp_path / "ours"))
    huggingface.write(back, str(tmp_path))
    model = transformers.XLNetLMHeadModel.from_pretrained(tmp_path).eval()
    assert_equal_outputs("of an original", model, back.objective.encoder, back.objective.head)


def test_parameters_of_the_published_sizes():
    for name in ("xlnet-base", "xlnet-large"):
        config = SIZES[name]
        with torch.device("meta"):
            model = transformers.XLNetModel(
                transformers.XLNetConfig(
                    vocab_size=config.vocab_size,
                    d_model=config.hidden_size,
                    n_layer=config.num_hidden_layers,
                    n_head=config.num_attention_heads,
                    d_inner=config.intermediate_size,
                )
            )
        expected = sum(parameter.numel() for parameter in model.parameters())
        assert expected == {"xlnet-base": 116_718_336, "xlnet-large": 360_268_800}[name]


def test_the_tokenizer_files_are_loaded(tmp_path):
    huggingface.write(conversion(), str(tmp_path))
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert type(tokenizer).__name__.startswith("XLNetTokenizer")
    ids = tokenizer("of the")["input_ids"]
    assert [tokenizer.convert_ids_to_tokens(i) for i in ids] == ["▁of", "▁the", "<sep>", "<cls>"]
