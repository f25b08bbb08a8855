"""CUDA toolkits: who gets what, what keeps a node from it, and whether all nodes have the same."""

from __future__ import annotations

import pytest
from ansible.module_utils.trainyard.nvidia import cuda_findings, cuda_plan
from cuda_states import ROOT, state, toolkit

SHA256 = "ab" * 32
WANTED = {
    "pins": {"13.0": ["nvidia-cuda-nvcc==13.0.88"]},
    "min_free_mib": {"distro": 6000, "network_repo": 8000, "runfile": 16000, "wheel": 700},
    "host_compiler": "",
    "manage_system": True,
}
RUNFILE = {"provider": "runfile", "version": "11.4.4", "url": "https://x.example/cuda.run", "sha256": SHA256}
WHEEL = {"provider": "wheel", "version": "13.0"}
HOME = "/usr/local/cuda-12.4"
INSTALLED = {"provider": "none", "path": HOME}
OLD_COMPILER = {"name": "g++", "version": "9.4.0", "installed": True}


def repository(version, **changes):
    return {"provider": "network_repo", "version": version, **changes}


def plan(records, default="", absent=(), wanted=None, **changes):
    node = {"state": state(**changes), "records": records, "default": default, "absent": list(absent)}
    nodes, findings = cuda_plan.plan_toolkits([node], {**WANTED, **(wanted or {})})
    return nodes.get("n1", {}), findings


def texts(findings):
    return [(finding.check, finding.found) for finding in findings]


def test_several_toolkits_side_by_side():
    compiler = {"name": "g++-11", "version": "11.1.0", "installed": False}
    wanted = {"host_compiler": "g++-11"}
    records = [repository("12.4.1"), repository("12.6"), WHEEL, RUNFILE]
    nodes, findings = plan(records, default="13.0", wanted=wanted, compiler=compiler)
    assert findings == [] and all(one["install"] for one in nodes["toolkits"])
    homes = [HOME, "/usr/local/cuda-12.6", f"{ROOT}/cuda-13.0", f"{ROOT}/cuda-11.4.4"]
    assert [one["home"] for one in nodes["toolkits"]] == homes
    packages = {"cuda-toolkit-12-4": "12.4.1", "cuda-nvcc-12-4": "12.4.131", "cuda-toolkit-12-6": ""}
    assert {one["name"]: one["version"] for one in nodes["packages"]} == packages
    assert nodes["default"] == f"{ROOT}/cuda-13.0"


def test_the_first_is_the_default_and_none_is_possible():
    records, there = [WHEEL, INSTALLED], {HOME: toolkit("12.4.131")}
    assert plan(records, toolkits=there)[0]["default"] == f"{ROOT}/cuda-13.0"
    assert plan(records, toolkits=there, default="none")[0]["default"] == ""
    assert plan([])[0]["default"] == ""
    # Debian's package brings its own compiler.
    nodes, findings = plan([{"provider": "distro"}])
    assert (findings, nodes["default"]) == ([], f"{ROOT}/cuda-distro")
    assert nodes["toolkits"][0]["packages"] == [{"name": "nvidia-cuda-toolkit", "version": ""}]


SAME = {"record": {"sha256": SHA256}}


@pytest.mark.parametrize(
    ("found", "install"),
    [
        (toolkit("11.4.152", cuda="11.4.4", **SAME), False),
        (toolkit("11.4.152", cuda="11.4.4", record={"sha256": "cd" * 32}), True),
        (toolkit("11.4.48", **SAME), True),
        (toolkit("", **SAME), True),
    ],
)
def test_a_runfile_is_installed_again_when_it_is_another_one(found, install):
    there = {f"{ROOT}/cuda-11.4.4": {**found, "kind": "runfile"}}
    nodes, findings = plan([RUNFILE], compiler=OLD_COMPILER, toolkits=there)
    assert (findings, nodes["toolkits"][0]["install"]) == ([], install)


@pytest.mark.parametrize(
    ("records", "found"),
    [
        ([{"provider": "apt", "version": "12.4"}], "provider 'apt' of CUDA 12.4"),
        ([repository("12")], "version '12' of the provider network_repo"),
        ([{"provider": "wheel", "version": ""}], "version '' of the provider wheel"),
        ([{**RUNFILE, "version": "11.4"}], "version '11.4' of the provider runfile"),
        ([{**RUNFILE, "sha256": "no"}], "sha256 'no' of CUDA 11.4.4"),
        ([{**RUNFILE, "url": "cuda.run"}], "url 'cuda.run' of CUDA 11.4.4"),
        ([{"provider": "wheel", "version": "12.4"}], "no wheels known of CUDA 12.4"),
        ([WHEEL, repository("13.0.1")], "2 toolkits of CUDA 13.0"),
    ],
)
def test_bad_input_is_a_finding(records, found):
    nodes, findings = plan(records)
    assert nodes == {}
    assert [finding.found for finding in findings] == [found]


METAPACKAGES = "cuda cuda-12-4 cuda-runtime-12-4 cuda-drivers cuda-drivers-550 nvidia-open cuda-toolkit"


@pytest.mark.parametrize("name", METAPACKAGES.split())
def test_metapackages_are_refused(name):
    nodes, (finding,) = plan([repository("12.4", packages=[name])])
    assert nodes == {} and finding.found.startswith(f"the package {name}, which ")


def test_packages_of_a_release_are_taken_as_they_are_given():
    names = ["cuda-toolkit-12-4", "cuda-nvcc-12-4", "libcublas-dev-12-4"]
    exact = {"name": "cuda-cudart-dev-12-4", "version": "12.4.127-1"}
    nodes, findings = plan([repository("12.4.1", packages=[*names, exact])])
    assert findings == []
    assert nodes["packages"] == [*({"name": name, "version": ""} for name in names), exact]


def test_a_newer_compiler_is_a_finding_with_an_alternative():
    _, (finding,) = plan([repository("11.8.0")])
    assert (finding.check, finding.found) == ("host compiler", "g++ 12.2.0")
    assert finding.expected == "gcc 11 or older for CUDA 11.8.0"
    assert "cuda_toolkit_host_compiler: g++-11" in finding.action
    later = {"name": "g++", "version": "14.2.0", "installed": False}
    _, (finding,) = plan([repository("12.4")], compiler=later, compilers=["g++-14"])
    assert finding.found == "g++ 14.2.0, to be installed"
    assert finding.action.startswith("install a gcc 13 and name it as cuda_toolkit_host_compiler")


def test_a_toolkits_own_headers_count_more_than_the_table():
    """Debian's 12.4 is patched for gcc 14, say."""
    there = {HOME: toolkit("12.4.131", newest_gcc="14")}
    later = {"name": "g++", "version": "14.2.0", "installed": True}
    assert plan([INSTALLED], toolkits=there, compiler=later)[1] == []
    node = state("n1", toolkits={HOME: toolkit("12.4.131", newest_gcc="11")}, default=HOME)
    assert texts(cuda_findings.check([node], planned(state("n1")))) == [("host compiler", "g++ 12.2.0")]


MISSING_COMPILER = {"compiler": {"name": "g++-99", "version": "", "installed": False}}


@pytest.mark.parametrize(
    ("record", "changes", "wanted", "check", "found"),
    [
        (repository("13.0"), {"family": "rhel", "os": "rhel 9.4"}, {}, "cuda_toolkit_provider", "on rhel 9.4"),
        ({"provider": "distro"}, {}, {"manage_system": False}, "cuda_toolkit_provider", "only root may install"),
        (WHEEL, {"toolkits": {f"{ROOT}/cuda-13.0": toolkit("13.0.88")}}, {}, "CUDA toolkit", f"{ROOT}/cuda-13.0, "),
        ({"provider": "none", "version": "12.4"}, {"toolkits": {"/usr/local/cuda": toolkit("12.6.85")}}, {},
         "CUDA toolkit", "CUDA 12.6 (nvcc 12.6.85) in /usr/local/cuda"),
        (WHEEL, {"default_kind": "foreign"}, {}, "default CUDA toolkit", f"{ROOT}/cuda, which is no link"),
        ({"provider": "none"}, {}, {}, "CUDA toolkit", "no nvcc that answers in /usr/local/cuda/bin"),
        (WHEEL, MISSING_COMPILER, {"host_compiler": "g++-99"}, "cuda_toolkit_host_compiler", "no g++-99"),
    ],
)  # fmt: skip
def test_findings_about_a_node(record, changes, wanted, check, found):
    ((one, text),) = texts(plan([record], wanted=wanted, **changes)[1])
    assert one == check and found in text


def test_space_is_needed_for_all_toolkits_of_a_folder():
    free = {"/usr": 100, ROOT: 16500}
    _, findings = plan([RUNFILE, WHEEL], free_mib=free, compiler=OLD_COMPILER)
    assert texts(findings) == [("disk", f"16500 MiB free in {ROOT}")]


VENDOR = {HOME: toolkit("12.4.131", kind="network_repo", named="12.4")}


def test_removal():
    there = {**VENDOR, f"{ROOT}/cuda-12.4": toolkit("12.4.131"), "/usr/local/cuda-12.6": toolkit("12.6.85")}
    nodes, findings = plan([WHEEL], absent=["12.4.1", "12.6"], toolkits=there, default="")
    assert findings == []
    # The others do not belong to this role.
    assert nodes["remove"] == [{"action": "remove", "provider": "network_repo", "version": "12.4", "home": HOME}]


def test_the_default_is_not_removed_without_another_one():
    node = {"state": state(toolkits=VENDOR, default=HOME), "records": [], "default": "", "absent": ["12.4"]}
    _, findings = cuda_plan.plan_toolkits([node], WANTED)
    assert texts(findings) == [("cuda_toolkit_absent", f"12.4 in {HOME}, which is the default")]
    assert "set cuda_toolkit_default: none" in findings[0].action
    nodes, findings = cuda_plan.plan_toolkits([{**node, "default": "none"}], WANTED)
    assert findings == []
    assert [one["home"] for one in nodes["n1"]["remove"]] == [HOME]
    # A requested version is not removed, and an unknown one is no default.
    _, findings = plan([repository("12.4.1")], absent=["12.4"], default="12.6")
    assert [finding.check for finding in findings] == ["cuda_toolkit_default", "cuda_toolkit_absent"]


def planned(*states, **record):
    records = [record or repository("12.4.1")]
    nodes = [{"state": one, "records": records, "default": "", "absent": []} for one in states]
    return cuda_plan.plan_toolkits(nodes, WANTED)[0]


def test_nodes_are_compared():
    right = {"toolkits": {HOME: toolkit("12.4.131", newest_gcc="13")}, "default": HOME}
    older = {"toolkits": {HOME: toolkit("12.4.99", newest_gcc="13")}}
    changes = [{}, {}, older, {"default": "/usr/local/cuda-12.6"}, {"toolkits": {}}]
    nodes = [state(f"n{number}", **{**right, **each}) for number, each in enumerate(changes, start=1)]
    found = [(finding.host, finding.check, finding.found) for finding in cuda_findings.check(nodes, planned(*nodes))]
    assert found == [
        ("n3", "CUDA toolkit", f"CUDA 12.4 (nvcc 12.4.99) in {HOME}"),
        ("n4", "default CUDA toolkit", "/usr/local/cuda-12.6"),
        ("n5", "CUDA toolkit", f"no nvcc that answers in {HOME}/bin"),
        ("n3", "CUDA toolkits", "nvcc 12.4.99"),
        ("n5", "CUDA toolkits", "nvcc missing"),
    ]
    assert cuda_findings.check(nodes[:2], planned(*nodes[:2])) == []


def test_another_setenv_that_comes_first_is_found():
    right = {"toolkits": {HOME: toolkit("12.4.131")}, "default": HOME}
    sessions = {"n1": {"PATH": f"{ROOT}/cuda/bin:/usr/bin"}, "n2": {"PATH": "/opt/site/bin:/usr/bin"}, "n3": None}
    nodes = [state(host, **right, session=session) for host, session in sessions.items()]
    found = [(finding.host, finding.found) for finding in cuda_findings.check(nodes, planned(*nodes), sessions=True)]
    assert found == [("n2", "PATH=/opt/site/bin:/usr/bin"), ("n3", "sshd does not report its settings")]
    assert cuda_findings.check(nodes, planned(*nodes)) == []


def test_odd_nodes_are_named_where_any_version_is_right():
    nodes = [
        state(f"n{number}", toolkits={"/usr/local/cuda": toolkit(nvcc)}, default="/usr/local/cuda")
        for number, nvcc in enumerate(["12.4.131", "12.4.131", "12.6.85"], start=1)
    ]
    (finding,) = cuda_findings.check(nodes, planned(*nodes, provider="none"))
    assert (finding.host, finding.found) == ("n3", "nvcc 12.6.85")
    assert finding.expected == "nvcc 12.4.131, as on n1, n2"


def test_sources_of_installers():
    records = [RUNFILE, {**RUNFILE, "version": "11.8.0", "local_file": "/c.run"}, repository("12.4")]
    found = cuda_plan.sources(records, "/opt")
    assert [(each["what"], each["unless"], each["url"], each["local_file"]) for each in found] == [
        ("CUDA 11.4.4", "/opt/cuda-11.4.4/bin/nvcc", RUNFILE["url"], ""),
        ("CUDA 11.8.0", "/opt/cuda-11.8.0/bin/nvcc", "", "/c.run"),
    ]


def test_offers_of_packages():
    distro = {"provider": "distro", "version": "11.8"}
    records = [repository("12.6"), distro, repository("12.4.1", packages=["cuda-nvcc-12-4"]), RUNFILE]
    asked = cuda_plan.offers(records, "network_repo")
    assert [(one["names"], one["version"]) for one in asked] == [(["cuda-toolkit-12-6"], ""), (["cuda-nvcc-12-4"], "")]
    assert cuda_plan.offers(records, "distro") == [{"names": ["nvidia-cuda-toolkit"], "version": "", "begins": "11.8"}]
