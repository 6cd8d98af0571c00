"""Draws the encoder as docs/architecture.svg, from the layers and weights of a built encoder.

    python -m analysis.architecture [--size convbert-small] [--output docs/architecture.svg]

Every box that has weights is looked up in the encoder by its layer's name, so a figure of layers
that do not exist cannot be drawn.
"""

from __future__ import annotations

import library_logs  # noqa: F401  TensorFlow reads the environment when it is imported

# isort: split
import argparse
from html import escape
from typing import NamedTuple

from files import write_text
from model import EncoderConfig, build_encoder, named_size

WIDTH, HEIGHT, BOX_HEIGHT = 860, 596, 46
GREY, BLUE, ORANGE = "#eceff1", "#d6e6f7", "#fde3c8"
_BOX = '<rect x="{x}" y="{y}" width="{w}" height="{h}" rx="6" fill="{fill}" stroke="#455a64"/>'
_TEXT = '<text x="{x}" y="{y}" text-anchor="middle" font-size="{size}">{text}</text>'
_ARROW = '<path d="M{x1} {y1} L{x2} {y2}" stroke="#455a64" fill="none" marker-end="url(#tip)"/>'
_HEAD = f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" \
font-family="sans-serif">
<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" \
orient="auto"><path d="M0 0 L8 4 L0 8 z" fill="#455a64"/></marker></defs>
<rect width="100%" height="100%" fill="white"/>
<rect x="10" y="112" width="840" height="424" rx="10" fill="none" stroke="#78909c" \
stroke-dasharray="6 4"/>"""


class Box(NamedTuple):
    """A rectangle with two lines of text; `x` is its centre, `y` its upper edge."""

    x: int
    y: int
    width: int
    fill: str
    title: str
    detail: str


def weights(config: EncoderConfig) -> dict[str, str]:
    """The shapes of the matrices by the name of their layer or table, such as "256 by 128"."""
    found: dict[str, list[str]] = {}
    for variable in build_encoder(config.replace(num_hidden_layers=1)).trainable_variables:
        *_, layer, name = variable.name.split(":")[0].split("/")
        if name.endswith(("kernel", "embeddings", "gamma")):
            shape = " \u00d7 ".join(str(n) for n in variable.shape if n > 1)
            found.setdefault(name if name.endswith("embeddings") else layer, []).append(shape)
    return {name: " and ".join(shapes) for name, shapes in found.items()}


def boxes(config: EncoderConfig) -> dict[str, Box]:
    """What is drawn, by name; arrows join boxes by these names."""
    shapes = weights(config)
    A, N, K = config.mixer_size, config.num_heads, config.conv_kernel_size

    def layer(name: str, title: str, x: int, y: int, width: int, fill: str) -> Box:
        return Box(x, y, width, fill, title, f"{name}: {shapes[name]}")

    return {
        "words": layer("word_embeddings", "token + position + segment", 230, 10, 300, GREY),
        "project": layer("embeddings_project", "to hidden size: X", 630, 10, 300, GREY),
        "query": layer("query", "Q", 342, 128, 122, GREY),
        "key": layer("key", "K", 211, 128, 122, BLUE),
        "value": layer("value", "V", 80, 128, 122, BLUE),
        "conv_key": layer("conv_attn_key", "K_s, span-aware key", 525, 128, 226, ORANGE),
        "conv_value": layer("conv_attn_point", "V of the convolution", 743, 128, 196, ORANGE),
        "attend": Box(
            190, 278, 340, BLUE, "self-attention", f"softmax(Q Kᵀ / √{A // N}) V, {N} heads"
        ),
        "kernel": layer("conv_attn_kernel", "kernel logits W_f (Q ⊙ K_s)", 525, 204, 226, ORANGE),
        "convolve": Box(
            640, 278, 400, ORANGE, "span-based dynamic convolution",
            f"LConv(V, softmax(W_f (Q ⊙ K_s))), {N} heads, {K} taps",
        ),
        "concat": Box(430, 342, 400, GREY, "concatenate", f"{A} + {A} channels"),
        "output": layer("mixer_output", "project, add X, layer norm", 430, 406, 400, GREY),
        "inner": layer("intermediate", f"feed-forward, {config.hidden_act}", 230, 472, 300, GREY),
        "outer": layer("output_dense", "project, add, layer norm", 630, 472, 300, GREY),
        "sequence": Box(
            430, 544, 500, GREY, "sequence [B, S, D]",
            f"pooled [B, D] is its first token; D = {config.hidden_size}",
        ),
    }  # fmt: skip


ARROWS = """words>project key>attend value>attend query>attend query>kernel conv_key>kernel
kernel>convolve conv_value>convolve attend>concat convolve>concat concat>output output>inner
inner>outer outer>sequence"""


def draw(config: EncoderConfig) -> str:
    """The figure as SVG."""
    drawn = boxes(config)
    parts = [_HEAD]
    for pair in ARROWS.split():
        a, b = (drawn[name] for name in pair.split(">"))
        if a.y == b.y:
            x1, y1, x2, y2 = a.x + a.width // 2, a.y + 23, b.x - b.width // 2, b.y + 23
        else:
            x1, y1, x2, y2 = a.x, a.y + BOX_HEIGHT, (a.x + 2 * b.x) // 3, b.y
        parts.append(_ARROW.format(x1=x1, y1=y1, x2=x2, y2=y2))
    for box in drawn.values():
        x = box.x - box.width // 2
        parts.append(_BOX.format(x=x, y=box.y, w=box.width, h=BOX_HEIGHT, fill=box.fill))
        for text, down, size in ((box.title, 19, 14), (box.detail, 37, 12)):
            parts.append(_TEXT.format(x=box.x, y=box.y + down, size=size, text=escape(text)))
    title = f"{config.num_hidden_layers} layers; X is what the layer below returns"
    parts.append(_TEXT.format(x=430, y=100, size=13, text=title))
    return "\n".join([*parts, "</svg>"]) + "\n"


def main() -> None:
    """Writes the figure."""
    parser = argparse.ArgumentParser(prog="python -m analysis.architecture")
    parser.add_argument("--size", default="convbert-small", help="named size, of mixed attention")
    parser.add_argument("--output", default="docs/architecture.svg", help="SVG file")
    arguments = parser.parse_args()
    write_text(arguments.output, draw(named_size(arguments.size)))


if __name__ == "__main__":
    main()
