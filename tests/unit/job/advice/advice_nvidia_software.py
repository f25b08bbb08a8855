"""NVIDIA's software of nodes, site.yml's findings on it, and what readers do for each part of the advice."""

from __future__ import annotations

from advice_readers import together
from advice_rules import Rule, correct, put
from ansible.module_utils.trainyard.nvidia import (
    cuda_findings,
    cuda_plan,
    cuda_verify,
    library,
    library_plan,
    nccl_tests,
)
from cuda_states import ROOT, machine, toolkit
from test_cuda_plan import OLD_COMPILER, WANTED, repository
from test_cuda_plan import RUNFILE as CUDA_RUNFILE
from test_cuda_verify import NO_DEVICE, RIGHT, ran
from test_library_plan import SUM, request
from test_nccl_tests import A100, COMMIT, H100, V100, state
from test_nccl_tests import NEW as NEW_GPU
from test_nccl_tests import WANTED as BUILD

HOME = "/usr/local/cuda-12.4"
GXX = {"name": "g++-11", "version": "11.2.0", "installed": False}
WHEEL = {"provider": "wheel", "version": "12.4", "wheels": ["nvidia-cuda-nvcc-cu12==12.4.131"]}
INSTALLED = {"provider": "none", "path": HOME}
THERE = {HOME: toolkit("12.4.131", named="12.4")}
SET = "take the provider wheel with its wheels as pins"


# ---- CUDA


def planned(*records, **changes):
    """Return a node with its CUDA toolkits and the variables of the role cuda_toolkit."""
    settings = {**WANTED, "min_free_mib": {**WANTED["min_free_mib"]}}
    given = {"state": machine(), "records": [*records], "default": "", "absent": [], "settings": settings}

    def plan(given):
        return cuda_plan.plan_toolkits([given], given["settings"])[1]

    return Rule(plan, given, **changes)


def only(record):
    return put(records=[record])


def compiler(name, version):
    """Return the change that names a host compiler, which the node then reports."""
    state = {"name": name, "version": version, "installed": True}
    return put(settings__host_compiler=name, state__compiler=state)


RUNFILE_OF_CUDA = {"the provider runfile with exact version, url and sha256": only(CUDA_RUNFILE)}
OTHERWISE = {
    SET: only(WHEEL),
    "none with the path of an installed one": together(only(INSTALLED), put(state__toolkits=THERE)),
}
CUDA_CASES = {
    "an unknown provider of CUDA": lambda _: (
        planned({"provider": "apt", "version": "12.4"}),
        correct("cuda_toolkit_versions", records=[repository("12.4")]),
    ),
    "two toolkits of a release": lambda _: (
        planned(repository("12.4"), repository("12.4.1")),
        correct("cuda_toolkit_versions", records=[repository("12.4")]),
    ),
    "CUDA without wheels": lambda _: (
        planned({"provider": "wheel", "version": "12.4"}),
        {
            "give the record its wheels as pins, name==version": only(WHEEL),
            "take the provider network_repo": only(repository("12.4")),
            "runfile with exact version, url and sha256": together(only(CUDA_RUNFILE), compiler("g++-9", "9.4.0")),
        },
    ),
    "CUDA with a driver": lambda _: (
        planned(repository("12.4", packages=["cuda"])),
        {
            "take it out of packages; drivers come from the role nvidia_driver": only(
                repository("12.4", packages=["cuda-toolkit-12-4"])
            )
        },
    ),
    "a default that is no version": lambda _: (
        planned(repository("12.4"), default="12.6"),
        {"name a version of cuda_toolkit_versions": put(default="12.4"), "none": put(default="none")},
    ),
    "a toolkit that is to be absent": lambda _: (
        planned(repository("12.4"), repository("12.6"), absent=["12.6"]),
        {"take it out of one of the two": only(repository("12.4"))},
    ),
    "the only toolkit, which is to be absent": lambda _: (
        planned(repository("12.4"), absent=["12.4"], default="12.4", state__toolkits=THERE, state__default=HOME),
        {
            "take it out of cuda_toolkit_absent": put(absent=[]),
            "put another version into cuda_toolkit_versions in its place (and into cuda_toolkit_default)": together(
                only(repository("12.6")), put(default="12.6")
            ),
        },
    ),
    "the default toolkit, which is to be absent": lambda _: (
        planned(absent=["12.4"], state__toolkits={HOME: toolkit("12.4.131", kind="network_repo")}, state__default=HOME),
        {
            "name another version in cuda_toolkit_versions": only(repository("12.6")),
            "set cuda_toolkit_default: none": put(default="none"),
        },
    ),
    "a compiler that is too new": lambda _: (
        planned(repository("12.6"), repository("11.8"), state__compiler={**OLD_COMPILER, "version": "14.2.0"}),
        {"set cuda_toolkit_host_compiler: g++-11, which the node's repositories have": compiler("g++-11", "11.2.0")},
    ),
    "a compiler that is too new for all": lambda _: (
        planned(repository("11.4"), state__compilers=[]),
        {
            "install a gcc 11.1 and name it as cuda_toolkit_host_compiler": compiler("/opt/g++", "11.1.0"),
            "take a newer CUDA": only(repository("12.4")),
        },
    ),
    "a compiler that nobody has": lambda _: (
        planned(repository("11.8"), settings__host_compiler="g++-8", state__compiler={**GXX, "version": ""}),
        {"name one of g++-11": compiler("g++-11", "11.2.0")},
    ),
    "a compiler that no repository has": lambda _: (
        planned(
            repository("11.8"),
            settings__host_compiler="g++-8",
            state__compilers=["g++-12"],
            state__compiler={**GXX, "version": ""},
        ),
        {"name the path of one, gcc 11 or older": compiler("/opt/g++", "11.2.0")},
    ),
    "too little room for CUDA": lambda _: (
        planned(repository("12.4"), state__free_mib={"/usr/local": 7000}),
        {"give cuda_toolkit_min_free_mib less if you know better": put(settings__min_free_mib__network_repo=6000)},
    ),
    "a default that is no link": lambda _: (
        planned(repository("12.4"), state__default_kind="foreign"),
        {
            "move it away": put(state__default_kind="none"),
            "set cuda_toolkit_root to another folder": put(state__default_kind="none", state__root="/opt/other"),
        },
    ),
    "CUDA packages without apt": lambda _: (
        planned(repository("12.4"), state__family="redhat", state__compiler=OLD_COMPILER),
        OTHERWISE | RUNFILE_OF_CUDA,
    ),
    "CUDA packages without root": lambda _: (planned(repository("12.4"), settings__manage_system=False), OTHERWISE),
    "a toolkit of somebody else": lambda _: (
        planned(WHEEL, state__toolkits={f"{ROOT}/cuda-12.4": toolkit("12.4.131")}),
        {
            "move it away": put(state__toolkits={}),
            "verify it: provider none, path": only({"provider": "none", "path": f"{ROOT}/cuda-12.4"}),
        },
    ),
    "a toolkit that is not there": lambda _: (
        planned(INSTALLED),
        {
            "install it there": put(state__toolkits=THERE),
            "give the record its path": together(
                put(state__toolkits={"/opt/cuda": toolkit("12.4.131")}), only({**INSTALLED, "path": "/opt/cuda"})
            ),
            "choose another provider": only(repository("12.4")),
        },
    ),
    "different toolkits": lambda _: (
        Rule(
            lambda given: cuda_findings.check(given["states"], given["plans"]),
            {
                "states": [machine("n1", toolkits=THERE), machine("n2", toolkits={f"{HOME}.5": toolkit("12.5.40")})],
                "plans": {"n1": installed_in(HOME), "n2": installed_in(f"{HOME}.5")},
            },
        ),
        {
            "give all nodes the same cuda_toolkit_versions": put(
                states=[machine(name, toolkits=THERE) for name in ("n1", "n2")], plans__n2=installed_in(HOME)
            )
        },
    ),
    "another number of GPUs": lambda _: (checked_cuda("8", 2), correct("nvidia_gpus", declared="2")),
    "GPUs where none were declared": lambda _: (checked_cuda("0", 2), correct("nvidia_gpus", declared="auto")),
    "no GPU on purpose": lambda _: (
        checked_cuda("auto", 0, (2, NO_DEVICE)),
        {"set nvidia_gpus: 0 for a node that has none on purpose": put(declared="0")},
    ),
}


def installed_in(home):
    return {"toolkits": [{"home": home, "version": "", "provider": "none"}], "default": ""}


def checked_cuda(declared, on_the_bus, program=(0, RIGHT)):
    """Return a node with its GPUs and the output of the test program."""
    given = {"declared": declared, "program": ran(*program), "on_the_bus": on_the_bus}
    return Rule(lambda given: cuda_verify.check_program("n1", **given)[1], given)


# ---- NCCL and cuDNN


def asked(name, provider, version="", cuda="", **changes):
    """Return the variables of the role nccl or cudnn."""
    return Rule(library_plan.input_findings, request(name, provider, version, cuda), **changes)


def archive(name, begin="set "):
    return {
        f"{begin}{name}_provider: archive with {name}_url and {name}_sha256": put(
            provider="archive", url="https://x.example/a.txz", sha256=SUM
        )
    }


LIBRARY_CASES = {
    "no exact NCCL": lambda _: (asked("nccl", "wheel", "2.21", "12.4"), {"correct it": put(version="2.21.5")}),
    "two archives of NCCL": lambda _: (
        asked("nccl", "archive", "2.21.5", "12.4", sha256=SUM, url="https://x", local_file="/a.txz"),
        {"set one of them": put(local_file="")},
    ),
    "no archive of NCCL": lambda _: (
        asked("nccl", "archive", "2.21.5", "12.4", sha256=SUM),
        {"set one of them": put(local_file="/a.txz")},
    ),
    "a cuDNN without wheels": lambda _: (
        asked("cudnn", "wheel", "8.0.5.39", "11.1"),
        archive("cudnn") | {"cudnn_provider: network_repo": put(provider="network_repo")},
    ),
    "a cuDNN without wheels or root": lambda _: (
        asked("cudnn", "wheel", "8.0.5.39", "11.1", manage_system=False),
        archive("cudnn"),
    ),
    "packages of cuDNN without root": lambda _: (
        asked("cudnn", "network_repo", "8.5.0.96", "11.7", manage_system=False),
        {"set cudnn_provider: wheel": put(provider="wheel")} | archive("cudnn", ""),
    ),
    "packages of an old cuDNN without root": lambda _: (
        asked("cudnn", "network_repo", "8.0.5.39", "11.1", manage_system=False),
        archive("cudnn"),
    ),
    "an NCCL of the distribution without root": lambda _: (
        asked("nccl", "distro", manage_system=False),
        {
            "set nccl_provider: archive with nccl_version, nccl_cuda, nccl_url and nccl_sha256": together(
                *archive("nccl").values(), put(version="2.21.5", cuda="12.4")
            )
        },
    ),
    "an NCCL that was built for another CUDA": lambda _: (
        Rule(
            lambda given: library.check_nodes([given], "nccl"),
            {
                "state": {
                    **{"host": "n1", "home": "/opt/nccl", "kind": "ours", "version": "2.21.5", "header": "2.21.5"},
                    **{"cuda": "12.2", "library": "/x", "error": "", "unloaded": ""},
                },
                "request": {"name": "nccl", "provider": "archive", "version": "2.21.5", "cuda": "12.4", "gpus": "8"},
            },
        ),
        {"correct nccl_cuda": put(request__cuda="12.2"), "take the build for it": put(state__cuda="12.4")},
    ),
}

# ---- nccl-tests


def built(*gpus, second=None, **settings):
    """Return nodes with what nccl-tests are built from, and the variables of the role."""
    nodes = [state("n1", *gpus), *([state("n2", *gpus, **second)] if second is not None else [])]
    return Rule(
        lambda given: nccl_tests.plan_builds(given["nodes"], given["settings"])[1],
        {"nodes": nodes, "settings": {**BUILD, **settings}},
    )


def with_(rule, change):
    change(rule)
    return rule


def of_first(**changes):
    def change(rule):
        rule.given["nodes"][0] |= changes

    return change


def in_home(name, **changes):
    def change(rule):
        for each in rule.given["nodes"]:
            each[name] |= changes

    return change


SOURCE = {
    **{"repository": "https://x.example/nccl-tests.git", "url": "", "commit": COMMIT, "sha256": "", "local_file": ""},
    **{"gencode": "auto", "make_options": [], "programs": ["all_reduce"], "prefix": "/opt/trainyard/nccl-tests"},
    **{"software": "/opt/trainyard"},
}


def given_tests(**changes):
    return Rule(lambda given: nccl_tests.input_findings(given, from_git=True), SOURCE, **changes)


GENCODE = "-gencode=arch=compute_90,code=sm_90"
NCCL_TESTS_CASES = {
    "no exact commit": lambda _: (given_tests(commit="main"), {"correct it": put(commit=COMMIT)}),
    "a password in an address": lambda _: (
        given_tests(repository="https://ann:secret@x.example/nccl-tests.git"),
        {
            "remove it": put(repository=SOURCE["repository"]),
            "use git's credential store or ~/.netrc on the building node": put(repository=SOURCE["repository"]),
        },
    ),
    "a home among the options of make": lambda _: (
        given_tests(make_options=["CUDA_HOME=/x"]),
        {"use this role's variables for homes, flags of nvcc and names": put(make_options=[])},
    ),
    "no Open MPI to build with": lambda _: (
        with_(built(H100), in_home("mpi", home="")),
        {"set nccl_tests_mpi_home": in_home("mpi", home="/opt/openmpi")},
    ),
    "two versions of NCCL": lambda _: (
        built(H100, second={"nccl": "2.18.3"}),
        {"set nccl_tests_nccl_home": in_home("nccl", home="/opt/nccl", version="2.21.5")},
    ),
    "a compiler that others can exchange": lambda _: (
        with_(built(H100), in_home("cuda", exchangeable="/usr/local/cuda")),
        {"set nccl_tests_cuda_home to another one": in_home("cuda", exchangeable="")},
    ),
    "flags that a CUDA does not know": lambda _: (
        built(H100, gencode=GENCODE.replace("90", "120")),
        {
            "correct nccl_tests_gencode": put(settings__gencode=GENCODE),
            "give these nodes another CUDA": in_home("cuda", version="13.0.88"),
        },
    ),
    "a GPU that is not known": lambda _: (
        built(NEW_GPU),
        {f"set nccl_tests_gencode, such as {GENCODE}": put(settings__gencode=GENCODE)},
    ),
    "a CUDA that is too new for the GPUs": lambda _: (
        with_(built(V100), in_home("cuda", version="13.0.88")),
        {"give the node a CUDA for its GPUs (variables of the role cuda_toolkit)": in_home("cuda", version="12.4.131")},
    ),
    "no tools": lambda _: (
        with_(built(A100, installs=False), of_first(missing=["make"])),
        {
            "install them there": of_first(missing=[]),
            "let the role do it (trainyard_manage_system)": put(settings__installs=True),
        },
    ),
}


CASES = {**CUDA_CASES, **LIBRARY_CASES, **NCCL_TESTS_CASES}
