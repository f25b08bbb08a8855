"""Images of jobs in a lock and in a bundle."""

import pytest
from ansible.module_utils.trainyard.bundle import bundled_images, contents, sbom, systems, use
from ansible.module_utils.trainyard_controller.bundle import site_locking
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

DIGEST = 64 * "a"
TORCH = f"docker://registry.example.org:5000/ml/torch@sha256:{DIGEST}"
SYSTEMS = {"n1": systems.named("debian-12-x86_64"), "n2": systems.named("debian-12-aarch64")}


def requests(*given):
    return {host: {"container_runtime": {"images": list(given)}} for host in SYSTEMS}


@pytest.fixture
def lock(tmp_path):
    """A lock with an image of a registry for two architectures, and a file."""
    (tmp_path / "my job.tar").write_bytes(b"image")
    given = bundled_images.wanted(requests(TORCH, f"oci-archive:{tmp_path}/my job.tar"), SYSTEMS)
    found, findings = site_locking.images_of(given)
    assert findings == []
    nothing = {"packages": {"files": [], "requested": []}, "environments": {}}
    return {"version": 1, "systems": {str(system): nothing for system in SYSTEMS.values()}, "files": [], "missing": [],
            "images": found}  # fmt: skip


def test_an_image_of_a_registry_travels_for_each_architecture_and_a_file_once(lock, tmp_path):
    items = contents.items(lock)
    assert [(each.path, each.url, each.architecture) for each in items] == [
        ("images/my_job-6105d6cc76af.tar", f"{tmp_path}/my job.tar", ""),
        ("images/torch-aaaaaaaaaaaa-amd64.tar", TORCH, "amd64"),
        ("images/torch-aaaaaaaaaaaa-arm64.tar", TORCH, "arm64"),
    ]
    assert contents.new_since(items, {items[1].path: DIGEST}) == [items[0], items[2]]
    assert use.paths(lock, SYSTEMS["n2"], [each.path for each in items]) == [items[0].path, items[2].path]


def test_an_image_that_the_bundle_lacks_is_named(lock):
    assert use.fit(lock, requests(TORCH), SYSTEMS) == []
    other = TORCH.replace("torch", "other")
    assert [each.found for each in use.fit(lock, requests(other), {"n1": SYSTEMS["n1"]})] == [
        f"no image {other} for amd64"
    ]


def test_the_bill_of_materials_names_images(lock):
    found = sbom.sbom(lock, "", "0.1.0")
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(sbom.text(found)) is None
    assert [each["type"] for each in found["components"]] == ["container"] * 3
    assert f"sha256:{DIGEST}" in [each.get("version") for each in found["components"]]


@pytest.mark.parametrize(
    "image", ["torch:2.13", "docker://registry.example.org/torch:2.13", "oci-archive:images/t.tar", "/i/a b.sif"]
)
def test_an_image_in_another_form_is_a_finding(image):
    (finding,) = bundled_images.input_findings([image, TORCH, "oci-archive:/i/t.tar", "/i/t.sif"])
    assert finding.found == f"container_runtime_images has {image}"


def test_a_file_that_is_not_there_is_a_finding(tmp_path):
    found, findings = site_locking.images_of([(f"oci-archive:{tmp_path}/x.tar", "")])
    assert found == [] and [each.found for each in findings] == [f"{tmp_path}/x.tar: No such file or directory"]
