"""The encoder's configuration: what it rejects, and its file."""

import pytest

from convbert.common.errors import InputError
from convbert.model import load_config
from tests.finetune.kinds_support import rejects
from tests.model_support import TINY, TINY_MODERN, TINY_XLNET

REJECTED = [
    *({"token_mixer": "attn"}, {"convolution": "sdconv"}, {"hidden_act": "geluu"}),
    {"span_kernel": "sum"},
    *({"conv_kernel_size": 4}, {"conv_kernel_size": 0}, {"num_hidden_layers": 0}),
    *({"head_ratio": 3}, {"head_ratio": 0}, {"head_ratio": 2.0}, {"hidden_size": 18}),  # 4 heads
    {"intermediate_size": 31, "linear_groups": 2},
    {"hidden_size": 20, "linear_groups": 8, "intermediate_size": 32},
    *({"vocab_size": "31"}, {"vocab_size": True}, {"share_layers": 1}),
    *({"hidden_dropout_prob": 1.0}, {"attention_probs_dropout_prob": -0.1}),
    {"initializer_range": "0.02"},
    *({"local_attention": 5}, {"canon_kernel_size": 4}),
]
MODERN = TINY_MODERN.replace(token_mixer="mixed")


@pytest.mark.parametrize(
    ("config", "changes"),
    [
        *((c, n) for c in (TINY, TINY_XLNET, MODERN) for n in REJECTED if {*n} <= {*vars(c)}),
        *((MODERN, new) for new in ({"token_mixer": "convolution"}, {"hidden_size": 20})),
    ],
    ids=str,
)
def test_rejected(config, changes):
    """The sentence begins with the field at fault and ends with what it was."""
    name, value = next(iter(changes.items()))
    with pytest.raises(InputError) as error:
        config.replace(**changes)
    assert str(error.value).startswith(f"`{name}` should be ")
    assert str(error.value).endswith(f"Received: {value!r}")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (None, "config.json"),
        ('{"hidden_size": 16,\n', "line 2: not JSON"),
        ("[1]", "JSON object"),
        ('{"\udcff": 1}', "UTF-8"),
        ('{"hidden_sise": 16}', "hidden_sise"),
        ('{"hidden_size": 18}', "`hidden_size` should be divisible"),
    ],
)
def test_bad_file_is_named(tmp_path, text, complaint):
    path = tmp_path / "config.json"
    if text is not None:
        path.write_bytes(text.encode(errors="surrogateescape"))
    with rejects(path, complaint):
        load_config(str(tmp_path))
