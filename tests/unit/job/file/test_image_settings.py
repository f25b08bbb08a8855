"""job_image and the variables beside it: every form, and every rule with its message."""

import pytest
from ansible.module_utils.trainyard.job import schedulers
from ansible.module_utils.trainyard.job.file.job import Image
from hypothesis import given
from hypothesis import strategies as st
from job_samples import briefly, job_file, make_job, wrong

DIGEST = f"docker://registry.example:5000/team/torch@sha256:{'ab' * 32}"


def test_an_image_of_each_form():
    assert make_job().image is None
    assert make_job(image=DIGEST).image == Image(DIGEST, "registry", ("podman", "apptainer", "docker"))
    archive = make_job(image="oci-archive:/images/torch.tar", container="docker").image
    assert (archive.kind, archive.runtimes) == ("archive", ("docker",))
    assert make_job(image="/images/torch.sif").image.runtimes == ("apptainer",)
    full = make_job(
        image=DIGEST, mounts=["/data:/data:ro", "/scratch:/var/scratch"], image_pull="never", image_copy="n1"
    ).image
    assert full.mounts == (("/data", "/data", "ro"), ("/scratch", "/var/scratch", "rw"))
    assert (full.pull, full.copy_from) == ("never", "n1")


@pytest.mark.parametrize(
    ("given_values", "key", "found"),
    [
        ({"image": "torch:latest"}, "job_image", "torch:latest"),
        ({"image": "docker://registry.example/torch:2.13"}, "job_image", "docker://registry.example/torch:2.13"),
        ({"image": "oci-archive:images/torch.tar"}, "job_image", "oci-archive:images/torch.tar"),
        ({"image": "/a.sif", "container": "podman"}, "job_container", "podman for /a.sif"),
        ({"image": DIGEST, "container": "rkt"}, "job_container", "'rkt'"),
        ({"image": DIGEST, "image_pull": "often"}, "job_image_pull", "'often'"),
        ({"image": DIGEST, "mounts": ["/data"]}, "job_mounts", "/data"),
        ({"image": DIGEST, "mounts": ["data:/data"]}, "job_mounts", "data:/data: data"),
        ({"image": DIGEST, "mounts": ["/data:/data:rx"]}, "job_mounts", "/data:/data:rx"),
        ({"image": DIGEST, "mounts": ["/a/../b:/b"]}, "job_mounts", "/a/../b:/b: /a/../b"),
        ({"image": DIGEST, "mounts": ["/a:/proc/1"]}, "job_mounts", "/a:/proc/1: /proc/1 is the container's own"),
        ({"image": DIGEST, "mounts": ["/a:/x", "/b:/x"]}, "job_mounts", "/b:/x: /x has /a already"),
        ({"mounts": ["/a:/x"]}, "job_mounts", "job_mounts with no job_image"),
        ({"container": "podman"}, "job_container", "job_container with no job_image"),
        ({"image": DIGEST, "registry_auth": {"user": "x"}}, "job_registry_auth", "another form"),
        (
            {"image": "/a.sif", "registry_auth": {"username": "u", "password": "p"}},
            "job_registry_auth",
            "a login for a file",
        ),
    ],
)
def test_what_cannot_be_is_named(given_values, key, found):
    assert ("", key, found) in briefly(wrong(**given_values))


def test_a_finding_names_a_scheduler_that_has_the_variable():
    given = wrong(scheduler="kubernetes", image="a/b:1", image_copy="n1", mounts=["/a:/b"])
    expected = {problem.check: problem.expected for problem in given}
    assert expected == {"job_image_copy": "job_scheduler: ssh", "job_mounts": "job_scheduler: ssh or slurm"}


def test_other_schedulers():
    assert make_job(scheduler="kubernetes", image="registry.example/torch:1", namespace="a").image is None
    with_mounts = wrong(scheduler="kubernetes", image="registry.example/torch:1", mounts=["/a:/b"])
    assert ("", "job_mounts", "job_mounts with job_scheduler: kubernetes, whose pods have job_kubernetes") in briefly(
        with_mounts
    )


def test_no_finding_quotes_a_password():
    findings = wrong(image=DIGEST, registry_auth={"username": "u", "password": ["hunter2"]})
    assert findings and "hunter2" not in str([finding.as_dict() for finding in findings])


@given(st.dictionaries(st.sampled_from(["image", "mounts", "container"]), st.text() | st.lists(st.text())))
def test_free_form_values_never_raise(values):
    schedulers.parse(job_file(**values))
