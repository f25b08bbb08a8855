"""playbooks/image.yml: wrong input ends it before a host is visited."""

BOOK = "playbooks/image.yml"


def test_all_wrong_input_is_reported_at_once(playbook):
    done = playbook(BOOK, "-e", "image_framework=torch", "-e", "image_base=docker://python:3.11", "-e", "image_file=a/")
    done.expect(2, "3 findings", "image_framework is 'torch'", "docker://NAME@sha256:...", "image_file is 'a/'")


def test_the_variables_of_the_framework_are_checked_before_podman_runs(playbook):
    given = ("-e", "image_framework=pytorch", "-e", "image_base=localhost/none:1", "-e", "trainyard_become=false")
    done = playbook(BOOK, *given, "-e", "pytorch_version=latest")
    done.expect(2, "pytorch_version is 'latest'", "Nothing was changed")
