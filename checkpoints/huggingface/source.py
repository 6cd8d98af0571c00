"""A folder as transformers' `save_pretrained` writes it: what is in it, and filling networks."""

from __future__ import annotations

import functools
import os

import numpy as np

import storage
from checkpoints.huggingface import names
from checkpoints.huggingface.config import TIED, encoder_config
from checkpoints.huggingface.tensors import TensorFiles
from checkpoints.model_directory import TASK_HEAD
from checkpoints.slots import Slot, fill
from errors import InputError
from model.config import CONFIG_FILE, read_fields

# ConvBERT has no class for replaced-token detection in transformers, which does not read this file.
DISCRIMINATOR_FILE = "discriminator_predictions.safetensors"


class Source:
    """A folder's configuration and tensors.

    Args:
        folder: with `config.json` and safetensors.
        config: the path of another `config.json` to be read instead.

    Attributes:
        model_type: "convbert", "electra" or "bert".
        config: the EncoderConfig.
        notes: what was inferred, and what was left out.
    """

    def __init__(self, folder: str, config: str | None = None):
        if not storage.isdir(folder):
            raise InputError(f"{folder}: there is no such folder")
        self.folder, path = folder, config or os.path.join(folder, CONFIG_FILE)
        fields = read_fields(path)
        self.config, self.notes = encoder_config(fields, path)
        self.model_type = fields["model_type"]
        self.tensors = TensorFiles(folder, extra=DISCRIMINATOR_FILE)
        self.notes += self.tensors.notes()
        self._said_tied = fields.get(TIED, True) is not False

    @property
    def prefix(self) -> str:
        """What the names of the encoder's tensors begin with; heads stand beside it."""
        return f"{self.model_type}." if self._has(self.model_type) else ""

    @property
    def has_masked_lm_head(self) -> bool:
        """Returns True if a head predicts masked tokens and shares the embeddings."""
        return self._has(names.MASKED_LM_HEADS[self.model_type]) and self.is_tied

    @property
    def has_discriminator_head(self) -> bool:
        """Returns True if there is a head that tells replaced tokens."""
        return self._has(names.DISCRIMINATOR_HEAD)

    @functools.cached_property
    def is_tied(self) -> bool:
        """Returns True if the output layer is the word embeddings, as far as files show it."""
        copies = [copy for copy in names.COPIES if copy in self.tensors.shapes]
        same = [
            self._original(copy) in self.tensors.shapes
            and np.array_equal(self.tensors.read(copy), self.tensors.read(self._original(copy)))
            for copy in copies
        ]
        return all(same) if any(copy.endswith("weight") for copy in copies) else self._said_tied

    def fill(self, slots: dict[str, Slot], of_task: bool = False) -> None:
        """Assigns the tensors to variables; `of_task` if those of a task's head are among them."""
        reason = functools.partial(self._left_out, of_task=of_task)
        self.notes += fill(slots, self.tensors, reason)

    def _left_out(self, name: str, of_task: bool) -> str | None:
        if name in names.COPIES and self.is_tied:
            return f"a copy of {self._original(name)}"
        if name.startswith(names.OUTPUT_SCOPES):
            return None if self.is_tied else f"a masked-LM head with {names.UNTIED}"
        inner = name.removeprefix(f"{self.model_type}.")
        for start, why in names.LEFT_OUT.items():
            if inner.startswith(start):
                return why
        if of_task or name.startswith(names.DISCRIMINATOR_HEAD):
            return None
        if inner.startswith(names.TASK_HEADS):
            return f"{TASK_HEAD}, unless --task says which task it is"
        beside = self.prefix and not name.startswith(self.prefix)
        return "a part beside the encoder that is not known here" if beside else None

    def _original(self, copy: str) -> str:
        return names.COPIES[copy].format(encoder=self.prefix)

    def _has(self, scope: str) -> bool:
        return any(name.startswith(f"{scope}.") for name in self.tensors.shapes)
