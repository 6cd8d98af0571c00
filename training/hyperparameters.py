"""The names of `settings`, where they were before; import them from there."""

from settings import (
    check_setting,
    checked_bool,
    differences,
    field_names,
    read_json_object,
    refuse_unknown,
    replace_checked,
)

__all__ = [
    "check_setting",
    "checked_bool",
    "differences",
    "field_names",
    "read_json_object",
    "refuse_unknown",
    "replace_checked",
]
