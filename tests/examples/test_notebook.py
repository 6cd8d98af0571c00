"""Slow: the notebooks run from raw text to answers and to search. Needs nbclient and ipykernel
(`python -m pip install -e '.[peers]' -c constraints.txt`) and five minutes of two cores each;
without these packages it is skipped and says so."""

import pathlib

import pytest

NEEDED = "needs the extra `peers`"
nbclient = pytest.importorskip("nbclient", reason=NEEDED)
nbformat = pytest.importorskip("nbformat", reason=NEEDED)
pytest.importorskip("ipykernel", reason=NEEDED)

pytestmark = pytest.mark.slow  # see above for what it needs

ROOT = pathlib.Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("name", "scored", "shown"),
    [("from_text_to_answers", "evaluate", "macro_f1"), ("search", "beir.scores", "after SimCSE")],
)
def test_the_notebook_runs(name, scored, shown):
    notebook = nbformat.read(ROOT / "examples" / f"{name}.ipynb", as_version=4)
    resources = {"metadata": {"path": str(ROOT)}}
    nbclient.NotebookClient(notebook, timeout=1200, resources=resources).execute()
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert all(cell.execution_count for cell in code)
    scores = next(cell for cell in code if scored in cell.source).outputs[-1]["data"]
    assert shown in scores["text/plain"]
