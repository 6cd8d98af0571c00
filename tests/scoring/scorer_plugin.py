"""A plugin in the place of scoring/scorer.py: shorter texts score higher; calls are counted."""

import os
import sys
import types


class LengthScorer:
    """Minus the number of letters; appends the number of sentences of a call to a file.

    Its method is pseudo_log_likelihood by default, as of a checkpoint with no other networks.
    """

    def __init__(self, path, method=None, **options):
        self._log = os.path.join(path, "calls.txt")
        self.method = method or "pseudo_log_likelihood"

    def scores(self, sentences, **_):
        with open(self._log, "a") as file:
            file.write(f"{len(sentences)}\n")
        words = [len(sentence.split()) for sentence in sentences]
        return [(-float(len(s.replace(" ", ""))), 2 * n, n) for s, n in zip(sentences, words)]


sys.modules["scoring.scorer"] = types.SimpleNamespace(open_scorer=LengthScorer)
