"""Tasks by name: the built-in ones, and those that a user declares in a JSON file."""

from __future__ import annotations

from collections.abc import Sequence

import storage
from errors import InputError
from finetune import declaration, glue
from finetune.task import Task
from settings import did_you_mean


def load_task(name_or_json_path: str) -> Task:
    """A built-in task by name (this project's or ELECTRA's spelling), or a user's by JSON file.

    Raises:
        InputError: no such built-in task (the nearest is suggested), or a declaration that is
            missing or wrong.
    """
    name = name_or_json_path.strip()
    if name.endswith(".json") or storage.isfile(name):
        return declaration.read(name)
    key = glue.ALIASES.get(name.lower(), name.lower())
    if key in glue.TASKS:
        return glue.TASKS[key]
    raise InputError(
        f"The task should be one of {', '.join(glue.TASKS)}, or the path of a JSON file that "
        f"declares a task. Received: {name_or_json_path!r}"
        f"{', a folder' if storage.isdir(name) else ''}."
        f"{did_you_mean(key, [*glue.TASKS, *glue.ALIASES])}"
    )


def load_tasks(names_or_json_paths: Sequence[str]) -> list[Task]:
    """`load_task` of each.

    Raises:
        InputError: as of `load_task`; or two tasks have the same name, and so the same results.
    """
    tasks = [load_task(name) for name in names_or_json_paths]
    first: dict[str, tuple[Task, str]] = {}
    for task, said in zip(tasks, names_or_json_paths):
        other, before = first.setdefault(task.name, (task, said))
        if task != other:
            raise InputError(
                f"{said}: each task should have a `name` of its own, which is that of the file if "
                f"the declaration gives none. Received: {task.name!r}, as {before} has"
            )
    return tasks
