"""An encoder's layers as a loop, so that a compiled program holds one layer and not all of them.

That is for TPUs, whose compilers take minutes, and hundreds of megabytes of code, for twelve
layers written out. On a GPU, which starts kernels to cut and join what a loop keeps, layers are
written out. Values and gradients are those of the layers one after the other.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import tensorflow as tf
import tf_keras

from model.kernels import built_for_tpu
from model.layers import LayerNorm


def runs_as_loop(layers: Sequence[tf_keras.layers.Layer], hidden: tf.Tensor) -> bool:
    """Whether layers that train on `hidden`, [B, S, D], are to be a loop."""
    known = hidden.shape.is_fully_defined() and all(layer.built for layer in layers)
    return known and built_for_tpu() and not tf.executing_eagerly()


def layers_in_loop(
    layers: Sequence[tf_keras.layers.Layer],
    hidden: tf.Tensor,
    bias: tf.Tensor,
    padding_mask: tf.Tensor,
    seeds: Sequence[tf.Tensor],
    rematerialize: bool = False,
) -> tuple[tf.Tensor, ...]:
    """The hidden states after every one of L layers in training, [B, S, D].

    Args:
        layers: of the same structure, built; the same one several times if it is shared.
        hidden: what enters the first, [B, S, D], of a static shape.
        bias: see `EncoderLayer`; receives no gradient, as the next.
        padding_mask: see `EncoderLayer`.
        seeds: of dropout, three a layer.
        rematerialize: whether gradients compute a layer again from what enters it; otherwise all
            that they read is kept.
    """
    constants, seeds = (bias, padding_mask), tf.reshape(tf.stack(seeds), [len(layers), 3, -1])
    traced = _traced(layers[0], hidden, constants, seeds[0], rematerialize)
    weights = traced.stacked([_weights(layer) for layer in layers])
    return tuple(tf.unstack(_loop(traced, hidden, constants, seeds, weights)))


# Operations without inputs, of shapes, and elementwise ones that become part of what reads them.
CHEAP = {"Const", "Placeholder", "Identity", "Reshape", "Squeeze", "ExpandDims", "Transpose"}
CHEAP |= {"Split", "SplitV", "ConcatV2", "Pack", "Unpack", "Bitcast", "Cast", "Mul"}
# What only puts weights in another order. It is done once for all layers, before the loop.
REARRANGING = {"Identity", "Reshape", "Squeeze", "ExpandDims", "Transpose", "ConcatV2"}


class _Traced(NamedTuple):
    """A layer and its gradient in one graph of tensors alone.

    Attributes:
        graph: where they are.
        given: names of (hidden, bias, padding_mask, seeds).
        weights: names of the weights.
        read: names of what is made of weights alone and read by all else, of one dtype: lists of
            vectors, which pass the loop as one, and lists of one name.
        output: name of the layer's output.
        upstream: name of the gradient of the output.
        to_hidden: name of the gradient of `hidden`.
        to_read: names of the gradients of what is read.
        kept: what lies on the way to the output, and the gradients read.
    """

    graph: tf.compat.v1.GraphDef
    given: list[str]
    weights: list[str]
    read: list[list[tf.Tensor]]
    output: str
    upstream: str
    to_hidden: str
    to_read: list[list[str]]
    kept: list[tf.Tensor]

    def stacked(self, weights: Sequence[Sequence[tf.Tensor]]) -> list[tf.Tensor]:
        """What layers read, [L, ...], from the weights of each, in the dtype they are kept in."""
        names = [tensor.name for part in self.read for tensor in part]
        graph = _in_float32(self.graph)

        @tf.function(autograph=False)  # of which a tape knows the gradient
        def of_layer(*weights):
            return _insert(graph, dict(zip(self.weights, weights, strict=True)), names)

        layers = [of_layer(*values) for values in weights]
        stacks = map(tf.stack, zip(*layers, strict=True))
        return [
            tf.cast(_joined([next(stacks) for _ in part], 1), part[0].dtype) for part in self.read
        ]

    def forward(self, weights, *given):
        """The output, and the values of `kept`."""
        wanted = [self.output, *(tensor.name for tensor in self.kept)]
        return _insert(self.graph, self._known(weights, given), wanted)

    def backward(self, upstream, weights, given, kept):
        """The gradients of `hidden` and of the weights. Without `kept` values they compute the
        layer again."""
        known = self._known(weights, given) | {self.upstream: upstream}
        known |= {tensor.name: value for tensor, value in zip(self.kept, kept, strict=True)}
        wanted = [self.to_hidden, *(name for part in self.to_read for name in part)]
        to_hidden, *gradients = _insert(self.graph, known, wanted)
        gradients = iter(gradients)
        return to_hidden, [_joined([next(gradients) for _ in part], 0) for part in self.to_read]

    def _known(self, weights, given):
        known = dict(zip(self.given, given, strict=True))
        for part, value in zip(self.read, weights, strict=True):
            values = [value]
            if len(part) > 1:
                values = tf.split(value, [tensor.shape[0] for tensor in part])
            known |= {tensor.name: v for tensor, v in zip(part, values, strict=True)}
        return known


def _joined(values, axis):
    return values[0] if len(values) == 1 else tf.concat(values, axis)


def _loop(traced: _Traced, hidden, constants, seeds, weights):
    L = seeds.shape[0]

    def at(i, stacks):
        return [stack[i] for stack in stacks]

    def run(body, carried, like, backwards=False):
        """Calls body(i, carried) L times. It returns what is carried on, and what is stacked, of
        the shapes and dtypes of `like`."""
        arrays = [tf.TensorArray(s.dtype, L, element_shape=s.shape) for s in like]

        def step(number, carried, arrays):
            i = L - 1 - number if backwards else number
            carried, kept = body(i, carried)
            return number + 1, carried, [a.write(i, k) for a, k in zip(arrays, kept, strict=True)]

        _, carried, arrays = tf.while_loop(
            lambda number, *_: number < L,
            step,
            (tf.constant(0), carried, arrays),
            parallel_iterations=1,
            maximum_iterations=L,
        )
        return carried, [array.stack() for array in arrays]

    @tf.custom_gradient
    def loop(hidden, *weights):
        def forward(i, hidden):
            output, *kept = traced.forward(at(i, weights), hidden, *constants, seeds[i])
            return output, [output, *kept]

        _, (outputs, *kept) = run(forward, hidden, [hidden, *traced.kept])
        inputs = tf.concat([hidden[None], outputs[:-1]], 0)

        def gradient(upstream):
            def backward(i, to_output):
                given = [inputs[i], *constants, seeds[i]]
                return traced.backward(to_output + upstream[i], at(i, weights), given, at(i, kept))

            like = [weight[0] for weight in weights]
            to_hidden, to_weights = run(backward, tf.zeros_like(hidden), like, backwards=True)
            return [to_hidden, *to_weights]

        return outputs, gradient

    return loop(hidden, *weights)


def _traced(layer, hidden, constants, seeds, rematerialize) -> _Traced:
    """Traces a layer with its gradient."""
    boundary, read = [], []

    @tf.function(autograph=False)
    def both(upstream, hidden, bias, padding_mask, seeds, *weights):
        with _substituted(layer, weights):
            output, *_ = layer(hidden, bias, padding_mask, training=True, seeds=tf.unstack(seeds))
        boundary.extend(output.graph.get_operations())
        made = _made_of(weights, boundary)
        # Gradients pass by what a custom gradient makes of its arguments.
        found = tf.gradients(output, made, upstream)
        apart = {tensor.name for tensor, to in zip(made, found, strict=True) if to is None}
        read.extend(_grouped(_made_of(weights, boundary, apart)))
        wanted = [hidden, *(tensor for part in read for tensor in part)]
        return output, tf.gradients(output, wanted, upstream)

    dtypes = [_computed_in(part) for part, _ in _places(layer)]
    weights = [tf.TensorSpec(w.shape, d) for w, d in zip(_weights(layer), dtypes, strict=True)]
    given = [tf.TensorSpec(t.shape, t.dtype) for t in (hidden, hidden, *constants, seeds)]
    graph = both.get_concrete_function(*given, *weights).graph
    upstream, *names = (tensor.name for tensor in graph.inputs)
    names = names[: len(given) - 1], names[len(given) - 1 :]
    output, to_hidden, *gradients = (tensor.name for tensor in graph.outputs)
    gradients = iter(gradients)
    to_read = [[next(gradients) for _ in part] for part in read]
    kept = [] if rematerialize else _read_by(graph.outputs[1:], set(boundary))
    return _Traced(graph.as_graph_def(), *names, read, output, upstream, to_hidden, to_read, kept)


def _grouped(tensors) -> list[list[tf.Tensor]]:
    """The vectors of each dtype, and the others one by one."""
    vectors, others = {}, []
    for tensor in tensors:
        if tensor.shape.rank == 1:
            vectors.setdefault(tensor.dtype, []).append(tensor)
        else:
            others.append([tensor])
    return [*vectors.values(), *others]


def _made_of(weights, operations, apart=()) -> list[tf.Tensor]:
    """What is made of weights alone by `REARRANGING`, and read by other operations.

    Operations whose results are named in `apart` count as others.
    """
    made, found = {weight.name for weight in weights}, {}
    for operation in operations:  # in an order in which they could run
        inputs = [tensor for tensor in operation.inputs if tensor.op.type != "Const"]
        ours = [tensor for tensor in inputs if tensor.name in made]
        alone = inputs and ours == inputs and operation.type in REARRANGING
        if alone and operation.outputs[0].name not in apart:
            made.add(operation.outputs[0].name)
            continue
        for tensor in ours:
            while tensor.op.type == "Identity":
                tensor = tensor.op.inputs[0]
            found[tensor.name] = tensor
    return list(found.values())


def _in_float32(graph):
    """The same graph, whose operations on bfloat16 or float16 are on float32."""
    changed, low = tf.compat.v1.GraphDef(), (tf.bfloat16, tf.float16)
    changed.CopyFrom(graph)
    for node in changed.node:
        if node.op in REARRANGING and tf.as_dtype(node.attr["T"].type) in low:
            node.attr["T"].type = tf.float32.as_datatype_enum
    return changed


def _insert(graph, known, wanted) -> list[tf.Tensor]:
    """Inserts what computes the `wanted` into the present graph. `known` is {name: value}."""
    nodes = {node.name: node for node in graph.node}
    cut, read = tf.compat.v1.GraphDef(library=graph.library, versions=graph.versions), set()
    waiting, seen = [name.split(":")[0] for name in wanted if name not in known], set()
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        node = cut.node.add()
        node.CopyFrom(nodes[name])
        node.ClearField("input")
        node.attr.pop("_class", None)  # colocation with nodes that may not be here
        node.input.extend(i for i in nodes[name].input if i[0] != "^")  # nothing here has effects
        for tensor in node.input:
            tensor = tensor if ":" in tensor else f"{tensor}:0"
            if tensor in known:
                read.add(tensor)
            else:
                waiting.append(tensor.split(":")[0])
    captured = {name: tf.identity(known[name]) for name in read}  # by this graph
    missing = [name for name in wanted if name not in known]
    made = tf.graph_util.import_graph_def(cut, captured, missing, name="layer")
    made = known | dict(zip(missing, made, strict=True))
    return [made[name] for name in wanted]


def _read_by(gradients, forward) -> list[tf.Tensor]:
    """What `gradients` read of the operations in `forward`, short of what is cheap to repeat.

    Those stand in other operations' passes over memory; what they are made of is kept instead.
    """
    kept, seen, waiting = [], set(), list(gradients)
    while waiting:
        tensor = waiting.pop()
        if tensor.name in seen:
            continue
        seen.add(tensor.name)
        if tensor.op.type == "IdentityN":  # of a custom gradient: one tensor each
            waiting.append(tensor.op.inputs[tensor.value_index])
        elif tensor.op not in forward or _is_cheap(tensor.op):
            waiting.extend(tensor.op.inputs)
        else:
            kept.append(tensor)
    return kept


def _is_cheap(operation):
    if operation.type.endswith("PartitionedCall"):
        return re.search(r"_(fused_gelu|drop)_\d+$", operation.get_attr("f").name) is not None
    return operation.type in CHEAP


def _places(layer: tf_keras.layers.Layer) -> list[tuple[tf_keras.layers.Layer, str]]:
    """Where the weights are, in an order that layers of the same structure share."""
    return [
        (part, name)
        for part in (layer, *layer.submodules)
        for name, value in sorted(vars(part).items())
        if isinstance(value, tf.Variable)
    ]


def _weights(layer: tf_keras.layers.Layer) -> list[tf.Tensor]:
    """The weights in the dtype they are kept in, whatever the layer computes in."""
    values = [vars(part)[name] for part, name in _places(layer)]
    # Keras' variables of mixed precision have the one that is kept within.
    return [tf.convert_to_tensor(vars(value).get("_variable", value)) for value in values]


def _computed_in(part: tf_keras.layers.Layer) -> tf.DType:
    """The dtype in which a part of a layer reads its weights."""
    return tf.as_dtype(part.variable_dtype if isinstance(part, LayerNorm) else part.compute_dtype)


@contextlib.contextmanager
def _substituted(layer: tf_keras.layers.Layer, tensors: Sequence[tf.Tensor]) -> Iterator[None]:
    """Within, the layer reads `tensors` in place of its weights."""
    places = _places(layer)
    variables = [vars(part)[name] for part, name in places]
    try:
        for (part, name), tensor in zip(places, tensors, strict=True):
            vars(part)[name] = tensor
        yield
    finally:
        for (part, name), variable in zip(places, variables, strict=True):
            vars(part)[name] = variable
