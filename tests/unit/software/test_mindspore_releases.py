"""MindSpore's catalog: which combinations exist, and which release supports what."""

import pytest
from ansible.module_utils.trainyard.software import mindspore_releases


@pytest.mark.parametrize(
    ("version", "device", "feature", "supported"),
    [
        ("2.10.0", "cpu", "msrun", True),
        ("2.3.0", "ascend", "msrun", True),
        ("2.2.14", "gpu", "msrun", False),
        ("2.10.0", "cpu", "recovery", False),
        ("2.5.0", "gpu", "recovery", True),
        ("2.6.0", "gpu", "recovery", False),
        ("2.10.0", "gpu", "recovery", False),
        ("1.7.0", "gpu", "recovery", True),
        ("1.6.2", "gpu", "recovery", False),
        ("1.10.1", "gpu", "recovery", True),
        ("2.2.0", "ascend", "recovery", False),
        ("2.10.0", "cpu", "mpirun", False),
        ("2.2.0", "gpu", "mpirun", True),
        ("1.10.1", "gpu", "rank_from_node_id", False),
        ("2.1.0", "gpu", "rank_from_node_id", True),
        ("2.10.0rc1", "cpu", "rank_from_node_id", True),
    ],
)
def test_features_by_release_and_device(version, device, feature, supported):
    assert mindspore_releases.supports(version, device, feature) == supported


@pytest.mark.parametrize("feature", mindspore_releases.FEATURES)
@pytest.mark.parametrize("device", mindspore_releases.DEVICES)
def test_a_newer_release_counts_as_the_last_known_one(device, feature):
    last = list(mindspore_releases.RELEASES)[-1]
    assert mindspore_releases.supports("9.99.0", device, feature) == mindspore_releases.supports(
        f"{last}.0", device, feature
    )


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        (("2.10.0", "cpu", "mpirun"), "training under mpirun on gpu and ascend only, not on cpu"),
        (("2.2.14", "gpu", "msrun"), "does not support msrun (2.3 and newer do)"),
        (("2.6.0", "gpu", "recovery"), "(1.7 to 2.5 do)"),
    ],
)
def test_an_unsupported_feature_is_explained(request_, reason):
    assert reason in mindspore_releases.why_not(*request_)


@pytest.mark.parametrize(("version", "minor"), [("2.10.0", "2.10"), ("2.1.0", "2.1"), ("2.7.1.post1", "2.7")])
def test_minor_releases_are_numbers_not_text(version, minor):
    assert mindspore_releases.minor(version) == minor


@pytest.mark.parametrize("text", ["", "latest", "2", "v2"])
def test_a_text_without_a_version_is_quoted(text):
    with pytest.raises(mindspore_releases.UnknownVersion, match=f"'{text}' is no version"):
        mindspore_releases.minor(text)


@pytest.mark.parametrize(
    ("version", "device", "name", "pythons"),
    [
        ("2.10.0", "cpu", "mindspore", ("3.10", "3.12")),
        ("2.7.1", "cpu", "mindspore", ("3.9", "3.11")),
        ("2.7.2", "cpu", "mindspore", ("3.9", "3.12")),
        ("2.2.14", "gpu", "mindspore", ("3.7", "3.9")),
        # Before 2.0 the name of the distribution includes the device.
        ("1.10.1", "gpu", "mindspore-gpu", ("3.7", "3.9")),
        ("1.10.1", "ascend", "mindspore-ascend", ("3.7", "3.9")),
        ("1.10.1", "cpu", "mindspore", ("3.7", "3.9")),
        ("9.0.0", "cpu", "mindspore", ("", "")),
    ],
)
def test_distributions_and_their_pythons(version, device, name, pythons):
    assert (mindspore_releases.distribution(version, device), mindspore_releases.pythons(version)) == (name, pythons)


SUM = 64 * "0"
WHEEL = {"wheel_url": "https://x/y.whl", "wheel_sha256": SUM}
GPU = {"device": "gpu", "cuda": "11.1"}
NUMPY = "Numpy == 2.0.2; python_version < '3.10'"


@pytest.mark.parametrize(
    "settings",
    [
        {"version": "2.10.0"},
        {"version": "2.9.0", "packages": ["numpy==1.26.4", "scipy==1.13.1"]},
        {"version": "2.7.1.post1", **WHEEL},
        {"version": "1.10.1", "device": "gpu", "cuda": "10.1", **WHEEL},
        # The index has these, as read from the wheels.
        {"version": "1.10.0", "device": "gpu", "cuda": "11.1"},
        {"version": "2.0.0", "device": "gpu", "cuda": "11.6"},
        {"version": "1.10.0", "device": "ascend"},
        {"version": "2.10.0", "device": "ascend"},
        # A prerelease, from a wheel only.
        {"version": "2.0.0a0", **WHEEL},
        {"version": "9.0.0", "device": "gpu", "cuda": "13.0", "python_min": "3.13", "python_max": "3.14", **WHEEL},
    ],
)
def test_a_possible_combination_has_no_finding(settings):
    assert list(mindspore_releases.input_findings(mindspore_releases.Settings(**settings))) == []


@pytest.mark.parametrize(
    ("settings", "found", "named"),
    [
        ({"version": "latest"}, "mindspore_version is 'latest'", "2.10.0"),
        ({"version": "2.10.0", "device": "npu"}, "mindspore_device is 'npu'", "cpu or gpu or ascend"),
        (
            {"version": "2.10.0", "device": "gpu", "cuda": "11.6"},
            "no MindSpore 2.10.0 for gpu",
            "gpu (CUDA 10.1, 11.1)",
        ),
        (
            {"version": "1.10.1", "device": "gpu", "cuda": "11.6", **WHEEL},
            "mindspore_cuda is '11.6'",
            "10.1 with cuDNN 7.6",
        ),
        ({"version": "2.10.0", "cuda": "11.6"}, "mindspore_cuda is '11.6', and mindspore_device cpu", "gpu"),
        ({**GPU, "version": "1.10.1"}, "no package index has MindSpore 1.10.1 for gpu", "1.9.0, 1.10.0, 2.0.0"),
        ({"version": "1.10.0", "device": "gpu", "cuda": "10.1"}, "no package index has MindSpore 1.10.0 for gpu", ""),
        ({"version": "2.0.0a0"}, "MindSpore 2.0.0a0 is a prerelease", "wheel"),
        ({"version": "1.10.1", "device": "ascend"}, "no package index has MindSpore 1.10.1 for ascend", ""),
        ({"version": "2.2.14", "wheel_url": "https://x/y.whl"}, "mindspore_wheel_sha256 is ''", "64 hexadecimal"),
        ({"version": "2.2.14", "wheel_sha256": SUM}, "mindspore_wheel_sha256 is set without mindspore_wheel_url", ""),
        ({"version": "9.0.0", "python_min": "3.13"}, "MindSpore 9.0.0 is not known here", "2.10 for cpu, ascend"),
        ({"version": "2.9.0", "packages": [NUMPY]}, "Numpy == 2.0.2", "numpy below 2 for MindSpore 2.9.0"),
    ],
)
def test_an_impossible_combination_names_the_possible_ones(settings, found, named):
    [finding] = mindspore_releases.input_findings(mindspore_releases.Settings(**settings))
    assert found in finding.found and named in finding.expected


def test_all_findings_come_at_once():
    settings = mindspore_releases.Settings("2.2.14", "gpu", "12.0", packages=["numpy==2.0.2"])
    assert len(list(mindspore_releases.input_findings(settings))) == 3


def test_a_cpu_build_comes_from_the_index():
    planned = mindspore_releases.plan(mindspore_releases.Settings("2.10.0"))
    assert (planned["pins"], planned["wheels"], planned["python_max"]) == (["mindspore==2.10.0"], {}, "3.12")
    assert (planned["verify_environment"], planned["driver"]) == ({"DEVICE_TARGET": "CPU"}, "")


def test_a_gpu_build_comes_from_its_wheel_and_needs_a_driver():
    planned = mindspore_releases.plan(mindspore_releases.Settings("1.10.1", "gpu", "11.1", python_max="3.8", **WHEEL))
    assert planned["pins"] == ["mindspore-gpu==1.10.1"]
    assert planned["wheels"] == {"mindspore-gpu": f"https://x/y.whl#sha256={SUM}"}
    assert (planned["python_min"], planned["python_max"]) == ("3.7", "3.8")
    assert planned["needs"] == "CUDA 11.1, cuDNN 8.0, NVIDIA driver 450.80.02 or newer"
