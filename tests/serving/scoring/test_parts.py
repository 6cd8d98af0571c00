"""Parts of texts that overlap: every piece counts once, where it has context."""

import pytest
import tensorflow as tf

from serving.signatures.scoring import overlapping_parts

LENGTHS = [0, 1, 4, 5, 6, 7, 9, 13, 29, 0, 3]


@pytest.mark.parametrize(
    ("room", "before", "after"), [(5, 1, 1), (1, 0, 0), (6, 3, 0), (8, 2, 2), (3, 1, 1)]
)
def test_every_piece_counts_once_and_has_context(room, before, after):
    texts = [list(range(n)) for n in LENGTHS]
    pieces = tf.ragged.constant(texts, dtype=tf.int32, ragged_rank=1)
    parts = overlapping_parts(pieces, room, before, after)
    counted = [[] for _ in texts]
    columns = (parts.pieces.to_list(), parts.text.numpy(), parts.start.numpy(), parts.end.numpy())
    for shown, text, start, end in zip(*columns, strict=True):
        size = len(texts[text])
        assert len(shown) == min(room, size)
        for place in range(start, end):
            piece = shown[place]  # its number in the text
            counted[text].append(piece)
            assert place >= min(before, piece)
            assert len(shown) - 1 - place >= min(after, size - 1 - piece)
    assert counted == texts
    assert (parts.text.numpy()[1:] >= parts.text.numpy()[:-1]).all()
