"""The kinds of tasks, by name. To add one, write a file here and import it below."""

# ruff: noqa: F401
from convbert.finetune.kinds import embedding, multiple_choice, reranking, span, tagging, texts
from convbert.finetune.kinds.base import get, hparam_names, names, register
