"""The kinds of tasks, by name. A new one is a file here and its name in this list."""

# ruff: noqa: F401
from convbert.finetune.kinds import multiple_choice, span, tagging, texts
from convbert.finetune.kinds.base import get, hparam_names, names, register
