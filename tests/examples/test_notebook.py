"""Slow: the notebook runs from raw text to answers.

Needs nbclient and ipykernel (`python -m pip install -e '.[peers]' -c constraints.txt`)
and five minutes of two cores; without these packages it is skipped and says so.
"""

import pathlib

import pytest

NEEDED = "needs the extra `peers`"
nbclient = pytest.importorskip("nbclient", reason=NEEDED)
nbformat = pytest.importorskip("nbformat", reason=NEEDED)
pytest.importorskip("ipykernel", reason=NEEDED)

pytestmark = pytest.mark.slow  # see above for what it needs

ROOT = pathlib.Path(__file__).parents[2]
NOTEBOOK = ROOT / "examples" / "from_text_to_answers.ipynb"


def test_the_notebook_runs():
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    resources = {"metadata": {"path": str(ROOT)}}
    nbclient.NotebookClient(notebook, timeout=1200, resources=resources).execute()
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert all(cell.execution_count for cell in code)
    scores = next(cell for cell in code if "evaluate" in cell.source).outputs[-1]["data"]
    assert "macro_f1" in scores["text/plain"]
