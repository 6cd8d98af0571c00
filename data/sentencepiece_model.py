"""A SentencePiece model as bytes: read, checked, listed. Needs no TensorFlow."""

from __future__ import annotations

import os

import sentencepiece
from google.protobuf.message import DecodeError
from sentencepiece import sentencepiece_model_pb2

import files
from errors import InputError

MODEL_FILE = "spiece.model"  # the name in XLNet's releases
MODEL_SUFFIX = ".model"
# In the order of `data.vocabulary.SPECIAL_TOKENS`, then the end of a document and of a paragraph.
SPECIAL_PIECES = ("<pad>", "<unk>", "<cls>", "<sep>", "<mask>")
END_OF_DOCUMENT, END_OF_PARAGRAPH = "<eod>", "<eop>"
WORD_BEGIN = "\u2581"  # what stands for a space in pieces
_LARGEST = 64 << 20  # bytes; those of 250,000 pieces have 5 MB


def read_model(path: str | os.PathLike[str]) -> bytes:
    """The bytes of a SentencePiece model.

    Raises:
        InputError: no such file, or one too large for a model.
    """
    return files.read_bytes(os.fspath(path), _LARGEST)


def pieces(model: bytes, where: str | os.PathLike[str]) -> tuple[str, ...]:
    """The pieces of a model in the order of their ids.

    Raises:
        InputError: no model, or of another kind than XLNet's; begins with `where`.
    """
    expected = f"{where} should be a SentencePiece model of type unigram."
    try:
        stored = sentencepiece_model_pb2.ModelProto.FromString(model)
        sentencepiece.SentencePieceProcessor(model_proto=model)
    except (DecodeError, RuntimeError) as error:
        raise InputError(f"{expected} Received: {error}") from error
    # What FastSentencepieceTokenizer would get wrong without saying so.
    spec = stored.trainer_spec
    wrong = ["byte_fallback", "treat_whitespace_as_suffix"]
    wrong = [f"{name} true" for name in wrong if getattr(spec, name)]
    wrong += [] if stored.pieces else ["no pieces"]
    if spec.model_type != spec.UNIGRAM:
        wrong.append(f"type {spec.ModelType.Name(spec.model_type).lower()}")
    if wrong:
        raise InputError(f"{expected} Received: {', '.join(wrong)}")
    return tuple(piece.piece for piece in stored.pieces)
