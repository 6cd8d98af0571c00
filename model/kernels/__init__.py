"""Kernels chosen by measurement: fused operations, custom gradients, order of computation.

Each kernel is equivalent to a line of plain TensorFlow, given in its docstring or as the function
`..._reference` next to it, in float32; tests compare values and gradients. `model/` itself reads as
the paper and calls these kernels.
"""

# ruff: noqa: F401
from convbert.common.backend import running_on_cpu_only
from convbert.common.seeds import split_seeds
from convbert.model.kernels.activations import activation_function, gelu, gelu_new
from convbert.model.kernels.attention import (
    PADDING_SCORE,
    attend,
    attend_nearby,
    attention_probabilities,
    join_heads,
    split_heads,
    window_bias,
)
from convbert.model.kernels.convolution import depthwise_conv, lightweight_conv
from convbert.model.kernels.distances import scores_by_key, scores_by_key_at
from convbert.model.kernels.fusion import (
    compiled_for_each_length,
    custom_gradient,
    fused,
    sizes,
    without_gradients,
)
from convbert.model.kernels.normalization import add_and_norm
from convbert.model.kernels.projection import (
    affine,
    dense_product,
    grouped_product,
    project,
    vocabulary_logits,
)
from convbert.model.kernels.stateless_dropout import dropout, hashed_uniform, mix_bits
from convbert.model.kernels.vocabulary import (
    exponentials_of,
    log_sum_exp_cross_entropy,
    vocabulary_cross_entropy,
    vocabulary_log_sum_exp,
)
