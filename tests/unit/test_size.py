"""The figures of `.ci/size.py`, from a tree of a few files."""

import runpy
from pathlib import Path

SIZE = runpy.run_path(str(Path(__file__).resolve().parents[2] / ".ci/size.py"))
RULES, NODE = "module_utils/trainyard", "module_utils/trainyard_node"
TEXTS = {
    f"{RULES}/__init__.py": "",
    f"{RULES}/job/__init__.py": "KNOWN = 1",
    f"{RULES}/job/plan.py": "from . import rules\nfrom .rules import LIMIT\nimport os as system",
    f"{RULES}/job/late.py": "from ..job import KNOWN",
    f"{RULES}/job/rules.py": "LIMIT = 1\n\n\ndef late():\n    from .ends import end as last\n",
    f"{RULES}/job/ends.py": "from .rules import LIMIT\nfrom . import rules as rules",
    f"{NODE}/job/plan.py": "from ...trainyard.job import plan as rules_of_plan\nfrom os import path",
    "library/job.py": "from ansible.module_utils.trainyard_node.job import plan",
}


def test_imports_lead_to_files():
    graph = SIZE["import_graph"](TEXTS)
    assert graph["library/job.py"] == {f"{NODE}/job/plan.py"}
    assert graph[f"{NODE}/job/plan.py"] == {f"{RULES}/job/plan.py"}
    assert graph[f"{RULES}/job/plan.py"] == {f"{RULES}/job/rules.py"}
    assert graph[f"{RULES}/job/late.py"] == {f"{RULES}/job/__init__.py"}


def test_circles_and_the_longest_chain():
    graph = SIZE["import_graph"](TEXTS)
    assert SIZE["circles"](graph) == [[f"{RULES}/job/ends.py", f"{RULES}/job/rules.py"]]
    chain = SIZE["longest_chain"](graph)
    # The circle counts once.
    assert chain == ["library/job.py", f"{NODE}/job/plan.py", f"{RULES}/job/plan.py", f"{RULES}/job/rules.py"]
    assert SIZE["circles"]({"a": {"b"}, "b": set()}) == []
    assert SIZE["longest_chain"]({}) == []


def test_a_tree_that_grows_is_a_finding():
    assert SIZE["too_large"](1000, 1000) == ""
    text = SIZE["too_large"](1001, 1000)
    assert text.startswith("found 1,001 tracked lines, expected at most 1,000: delete")
    assert "say why in the commit" in text
