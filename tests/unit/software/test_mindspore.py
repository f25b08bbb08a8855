"""MindSpore's catalog: which combinations exist, and which release does what."""

import pytest
from ansible.module_utils.trainyard.software import mindspore


@pytest.mark.parametrize(
    ("version", "device", "feature", "does"),
    [
        ("2.10.0", "cpu", "msrun", True),
        ("2.3.0", "ascend", "msrun", True),
        ("2.2.14", "gpu", "msrun", False),
        ("2.10.0", "cpu", "recovery", False),
        ("2.2.0", "gpu", "recovery", True),
        ("2.5.0", "gpu", "recovery", True),
        ("2.6.0", "gpu", "recovery", False),
        ("2.10.0", "gpu", "recovery", False),
        ("1.7.0", "gpu", "recovery", True),
        ("1.6.2", "gpu", "recovery", False),
        ("1.10.1", "gpu", "recovery", True),
        ("2.2.0", "ascend", "recovery", False),
        ("2.10.0", "cpu", "mpirun", False),
        ("2.2.0", "gpu", "mpirun", True),
        ("2.10.0", "ascend", "mpirun", True),
        ("1.10.1", "gpu", "rank_from_node_id", False),
        ("2.1.0", "gpu", "rank_from_node_id", True),
        ("2.10.0rc1", "cpu", "rank_from_node_id", True),
    ],
)
def test_which_release_does_what(version, device, feature, does):
    assert mindspore.supports(version, device, feature) == does


@pytest.mark.parametrize("feature", mindspore.FEATURES)
@pytest.mark.parametrize("device", mindspore.DEVICES)
def test_a_release_after_the_last_known_one_is_like_that_one(device, feature):
    last = list(mindspore.RELEASES)[-1]
    assert mindspore.supports("9.99.0", device, feature) == mindspore.supports(f"{last}.0", device, feature)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (
            ("2.10.0", "cpu", "mpirun"),
            "MindSpore supports training under mpirun on gpu and ascend only, not on cpu: use job_launcher: mindspore",
        ),
        (
            ("2.2.14", "gpu", "msrun"),
            "MindSpore 2.2.14 does not support msrun (2.3 and newer do): use job_launcher: mindspore",
        ),
        (
            ("2.6.0", "gpu", "recovery"),
            "MindSpore 2.6.0 does not support taking back a single worker that died (in graph mode) (1.7 to 2.5 do): "
            "let the whole job start again from its last checkpoint (job_max_restarts)",
        ),
    ],
)
def test_the_reason_names_the_way_out(asked, said):
    assert mindspore.why_not(*asked) == said


@pytest.mark.parametrize(("version", "minor"), [("2.10.0", "2.10"), ("2.1.0", "2.1"), ("2.7.1.post1", "2.7")])
def test_minor_releases_are_numbers_not_text(version, minor):
    assert mindspore.minor(version) == minor


@pytest.mark.parametrize("text", ["", "latest", "2", "v2"])
def test_what_is_no_version_is_quoted(text):
    with pytest.raises(mindspore.UnknownVersion, match=f"'{text}' is no version"):
        mindspore.minor(text)


@pytest.mark.parametrize(
    ("version", "device", "name"),
    [
        ("2.10.0", "cpu", "mindspore"),
        ("2.2.14", "gpu", "mindspore"),
        ("1.10.1", "gpu", "mindspore-gpu"),
        ("1.10.1", "ascend", "mindspore-ascend"),
        ("1.10.1", "cpu", "mindspore"),
    ],
)
def test_the_distribution_has_the_device_in_its_name_before_2_0(version, device, name):
    assert mindspore.distribution(version, device) == name


@pytest.mark.parametrize(
    ("version", "pythons"),
    [
        ("1.7.0", ("3.7", "3.9")),
        ("2.7.1", ("3.9", "3.11")),
        ("2.7.2", ("3.9", "3.12")),
        ("2.10.0", ("3.10", "3.12")),
        ("9.0.0", ("", "")),
    ],
)
def test_the_range_of_pythons(version, pythons):
    assert mindspore.pythons(version) == pythons


SUM = 64 * "0"
WHEEL = {"wheel_url": "https://x/y.whl", "wheel_sha256": SUM}


@pytest.mark.parametrize(
    "wanted",
    [
        {"version": "2.10.0"},
        {"version": "2.9.0", "packages": ["numpy==1.26.4", "scipy==1.13.1"]},
        {"version": "2.7.1.post1", **WHEEL},
        {"version": "2.2.14", "device": "gpu", "cuda": "11.6", **WHEEL},
        {"version": "1.10.1", "device": "gpu", "cuda": "10.1", **WHEEL},
        # In the index, by their own names: read from the wheels.
        {"version": "1.10.0", "device": "gpu", "cuda": "11.1"},
        {"version": "1.8.1", "device": "gpu", "cuda": "11.1"},
        {"version": "2.0.0", "device": "gpu", "cuda": "11.6"},
        {"version": "1.10.0", "device": "ascend"},
        # Before the release, from a wheel only.
        {"version": "2.0.0a0", **WHEEL},
        {"version": "2.7.0", "device": "ascend", **WHEEL},
        {"version": "2.10.0", "device": "ascend"},
        {"version": "9.0.0", "device": "gpu", "cuda": "13.0", "python_min": "3.13", "python_max": "3.14", **WHEEL},
    ],
)
def test_what_exists_or_is_not_known_has_no_problem(wanted):
    assert list(mindspore.problems(mindspore.Wanted(**wanted))) == []


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        ({"version": "latest"}, "mindspore_version is 'latest', expected an exact release such as 2.10.0."),
        ({"version": "2.10.0", "device": "npu"}, "mindspore_device is 'npu', expected cpu, gpu, ascend."),
        (
            {"version": "2.10.0", "device": "gpu", "cuda": "11.6"},
            "There is no MindSpore 2.10.0 for gpu. There are: 1.7 to 1.10 for cpu, gpu (CUDA 10.1, 11.1), ascend,",
        ),
        (
            {"version": "1.10.1", "device": "gpu", "cuda": "11.6", **WHEEL},
            "mindspore_cuda is '11.6', but MindSpore 1.10.1 was built for 10.1 with cuDNN 7.6 or 11.1 with cuDNN 8.0:",
        ),
        ({"version": "2.10.0", "cuda": "11.6"}, "mindspore_cuda is '11.6', but mindspore_device is cpu: leave it"),
        ({"version": "2.2.14", "device": "gpu", "cuda": "11.6"}, "No package index has MindSpore 2.2.14 for gpu: give"),
        (
            {"version": "1.10.1", "device": "gpu", "cuda": "11.1"},
            "mindspore_wheel_sha256. Of this build the index has 1.7.0, 1.8.0, 1.8.1, 1.9.0, 1.10.0, 2.0.0.",
        ),
        ({"version": "1.10.0", "device": "gpu", "cuda": "10.1"}, "No package index has MindSpore 1.10.0 for gpu: give"),
        ({"version": "2.0.0a0"}, "MindSpore 2.0.0a0 is a release before the release, which indexes give up: give"),
        ({"version": "1.10.1", "device": "ascend"}, "No package index has MindSpore 1.10.1 for ascend: give the add"),
        ({"version": "2.2.14", "wheel_url": "https://x/y.whl"}, "mindspore_wheel_sha256 is '', expected the 64 hexa"),
        ({"version": "2.2.14", "wheel_sha256": SUM}, "mindspore_wheel_sha256 is set without mindspore_wheel_url"),
        ({"version": "9.0.0", "python_min": "3.13"}, "MindSpore 9.0.0 is not known here: set mindspore_python_min and"),
        (
            {"version": "2.9.0", "packages": ["Numpy == 2.0.2; python_version < '3.10'"]},
            "but MindSpore 2.9.0 needs a numpy below 2, such as numpy==1.26.4.",
        ),
    ],
)
def test_what_does_not_exist_is_refused_with_what_does(wanted, said):
    assert said in " ".join(mindspore.problems(mindspore.Wanted(**wanted)))


def test_everything_wrong_is_told_at_once():
    wanted = mindspore.Wanted("2.2.14", "gpu", "12.0", packages=["numpy==2.0.2"])
    assert len(list(mindspore.problems(wanted))) == 3


def test_a_cpu_build_comes_from_the_index():
    assert mindspore.plan(mindspore.Wanted("2.10.0")) == {
        "distribution": "mindspore",
        "pin": "mindspore==2.10.0",
        "wheels": {},
        "python_min": "3.10",
        "python_max": "3.12",
        "target": "CPU",
        "driver": "",
        "needs": "",
    }


def test_a_gpu_build_comes_from_its_wheel_and_needs_more():
    assert mindspore.plan(mindspore.Wanted("1.10.1", "gpu", "11.1", **WHEEL)) == {
        "distribution": "mindspore-gpu",
        "pin": "mindspore-gpu==1.10.1",
        "wheels": {"mindspore-gpu": f"https://x/y.whl#sha256={SUM}"},
        "python_min": "3.7",
        "python_max": "3.9",
        "target": "GPU",
        "driver": "450.80.02",
        "needs": "CUDA 11.1, cuDNN 8.0, NVIDIA driver 450.80.02 or newer",
    }


def test_the_range_of_pythons_that_is_given_counts():
    planned = mindspore.plan(mindspore.Wanted("9.0.0", python_min="3.13", python_max="3.14"))
    assert (planned["python_min"], planned["python_max"]) == ("3.13", "3.14")


def test_all_combinations_in_words():
    assert mindspore.combinations() == (
        "1.7 to 1.10 for cpu, gpu (CUDA 10.1, 11.1), ascend, Python 3.7 to 3.9; "
        "2.0 to 2.2 for cpu, gpu (CUDA 10.1, 11.1, 11.6), ascend, Python 3.7 to 3.9; "
        "2.3 for ascend, Python 3.8 to 3.10; "
        "2.4 to 2.7 for cpu, ascend, Python 3.9 to 3.11; "
        "2.8 to 2.9 for cpu, ascend, Python 3.9 to 3.12; "
        "2.10 for cpu, ascend, Python 3.10 to 3.12"
    )
