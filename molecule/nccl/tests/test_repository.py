"""The role nvidia_repository: the right repository or none, and exactly the requested versions, which stay.

The repository is a fake (tests/fixtures/nvidia_repository); apt, its checks and its lists are real.
"""

import pytest
from lab_jobs import host_list

WANTED = "2.21.5-1+cuda12.4"
OLDER = "2.20.5-1+cuda12.4"
BOTH = ("libnccl2", "libnccl-dev")
FILES = "/etc/apt/sources.list.d/trainyard-nvidia.sources /etc/apt/preferences.d/trainyard-nvidia"
FILES += " /etc/apt/keyrings/trainyard-nvidia.asc"


def nccl(version):
    return dict.fromkeys(BOTH, version)


def only(result):
    """The one finding of a result."""
    (finding,) = result["findings"]
    return finding


@pytest.fixture
def restored(packages):
    """A test may change versions; they are as converged afterwards."""
    yield
    assert packages(nccl(WANTED), check=False)["versions"] == nccl(WANTED)


def test_exactly_the_version_that_was_asked_for_and_held(have):
    # Newer ones are there, of NVIDIA and, without the suffix, of the distribution.
    assert have() == dict.fromkeys(BOTH, (WANTED, "hold"))


def test_a_key_with_another_fingerprint_is_refused_before_anything_is_touched(
    run_playbook, node_names, fingerprints, last
):
    before = last.check_output(f"stat --format '%n %y' {FILES}")
    run_playbook("repository.yml", steps=["main"], nvidia_repository_key_fingerprint=fingerprints["stranger"]).fails(
        "NVIDIA's packages cannot be had: 1 finding. Nothing was changed. "
        f"1. key of the repository on {host_list(node_names)} found http",
        f"holds {fingerprints['nvidia']} expected only {fingerprints['stranger']} do as the node says: compare the",
    )
    assert last.check_output(f"stat --format '%n %y' {FILES}") == before


@pytest.mark.long
def test_a_repository_that_another_key_has_signed_is_refused(call, source, first, fingerprints):
    stranger = source | {
        "key_url": source["uri"].rpartition("/debian")[0] + "/stranger.asc",
        "fingerprints": [fingerprints["stranger"]],
    }
    finding = only(call("nvidia_repository", stranger))
    assert "it is signed by another key than the one given. apt says: " in finding["found"]
    assert "NO_PUBKEY" in finding["found"] or "Missing key" in finding["found"]


@pytest.mark.long
def test_a_label_that_the_pin_would_miss_is_refused(call, source):
    finding = only(call("nvidia_repository", source | {"label": "Mirror"}))
    assert (finding["found"], finding["expected"]) == (
        f"{source['uri']} has the label 'NVIDIA CUDA'",
        "'Mirror', which the pin goes by",
    )


@pytest.mark.long
def test_a_second_source_of_the_same_packages_is_refused(call, source, last):
    other = "/etc/apt/sources.list.d/cuda-debian12-x86_64.list"
    key = "/etc/apt/keyrings/trainyard-nvidia.asc"
    last.check_output(f"echo 'deb [signed-by={key}] {source['uri']}/ /' | sudo tee {other}")
    try:
        finding = only(call("nvidia_repository", source))
    finally:
        last.check_output(f"sudo rm {other}")
    assert (finding["check"], finding["found"]) == (
        "second source of NVIDIA's packages",
        f"{source['uri']}/ in {other}",
    )


def test_a_tampered_repository_is_refused_and_apt_stays_usable(packages, published, first, last, have):
    first.check_output(f"sudo sed -i 's/^Label: .*/Label: NVIDIA  CUDA/' {published}/InRelease")
    before = have()
    finding = only(packages(nccl(OLDER), refresh=True))
    assert "its signature does not fit its content. apt says: W: " in finding["found"]
    assert "take another mirror" in finding["action"]
    assert have() == before
    assert last.run("sudo apt-get check").rc == 0
    # The list that was verified earlier still serves.
    assert packages(nccl(OLDER))["findings"] == []


@pytest.mark.long
def test_a_new_node_is_not_told_of_a_tampered_repository(call, source, published, first, last):
    call("nvidia_repository", {**{name: source[name] for name in ("host", "provider")}, "step": "remove"}, check=False)
    # A list that apt has verified earlier would do.
    last.check_output("sudo sh -c 'rm /var/lib/apt/lists/*8099*'")
    first.check_output(f"sudo sed -i 's/^Maintainer: fake/Maintainer: nobody/' {published}/Packages")
    first.check_output(f"sudo sh -c 'gzip --stdout {published}/Packages >{published}/Packages.gz'")
    try:
        found = only(call("nvidia_repository", source))["found"]
        assert "its package list does not fit the signed sums. apt says: E: Failed to fetch" in found
        failed = call("nvidia_repository", source, check=False)
        assert "or take another mirror" in failed["msg"] and failed["msg"].endswith("Nothing was changed.")
        assert last.run(f"ls {FILES}").stdout == ""
        assert last.run("sudo apt-get update && sudo apt-get check").rc == 0
    finally:
        first.check_output(f"sudo cp /srv/nvidia-fake/kept/Packages* {published}/")
        assert call("nvidia_repository", source, check=False)["changed"]
    assert not call("nvidia_repository", source, check=False)["changed"]


@pytest.mark.long
def test_a_repository_that_is_down_is_named_and_nothing_is_changed(packages, call, source, first, have):
    before = have()
    first.check_output("sudo systemctl stop nvidia-fake.service")
    try:
        finding = only(packages(nccl(OLDER), refresh=True))
        # Installed packages need no repository.
        kept = packages(nccl(WANTED), refresh=True)
        known = call("nvidia_repository", source)
    finally:
        first.check_output("sudo systemctl start nvidia-fake.service")
    assert finding["found"].startswith(f"{source['uri']}: it does not answer. apt says: E: Failed to fetch")
    assert (kept["findings"], kept["changed"], known["findings"]) == ([], False, [])
    assert have() == before


def test_a_missing_version_is_answered_with_what_there_is(packages, have):
    before = have()
    finding = only(packages({"libnccl2": "2.99.1"}))
    assert (finding["check"], finding["expected"]) == ("package libnccl2", "2.99.1")
    assert f"offers 2.28.9-1+cuda13.0, {WANTED}, 2.21.5-1+cuda12.2, {OLDER}" in finding["found"]
    assert have() == before


def test_down_and_up_again(packages, have, restored):
    preview = packages(nccl(OLDER))
    assert preview["actions"] == [f"{name} {OLDER}: instead of {WANTED}" for name in reversed(BOTH)]
    assert have() == dict.fromkeys(BOTH, (WANTED, "hold"))
    assert packages(nccl(OLDER), check=False)["changed"]
    assert have() == dict.fromkeys(BOTH, (OLDER, "hold"))
    assert not packages(nccl(OLDER), check=False)["changed"]


@pytest.mark.long
def test_versions_that_do_not_fit_together_are_refused(packages, have):
    before = have()
    finding = only(packages({"libnccl2": OLDER, "libnccl-dev": WANTED}))
    assert f"Depends: libnccl2 (= {WANTED}) but {OLDER} is to be installed" in finding["found"]
    assert have() == before


@pytest.fixture
def distribution(last, first, uri):
    """A distribution that offers NCCL, newer and under the same names."""
    base = uri.rpartition("/debian")[0] + "/distribution"
    files = "/etc/apt/keyrings/distribution.asc /etc/apt/sources.list.d/distribution.list"
    key, listed = files.split()
    content = first.file("/srv/nvidia-fake/www/distribution/key.asc").content_string
    last.check_output(f"echo '{content}' | sudo tee {key}")
    last.check_output(f"echo 'deb [signed-by={key}] {base}/ /' | sudo tee {listed}")
    last.check_output("sudo apt-get update")
    yield base
    last.check_output(f"sudo rm {files} && sudo apt-get update")


@pytest.mark.long
def test_a_dist_upgrade_changes_nothing_and_the_distribution_is_never_taken(
    distribution, packages, last, have, restored
):
    assert "2.22.3-1" in last.check_output("apt-cache madison libnccl2")
    upgrade = "sudo apt-get --simulate dist-upgrade | grep -E '^(Inst|Remv).*nccl' || true"
    assert last.check_output(upgrade) == ""
    # Somebody releases the holds: the pins are still there, and the role holds again.
    last.check_output("sudo apt-mark unhold " + " ".join(BOTH))
    assert last.check_output(upgrade) == ""
    again = packages(nccl(WANTED), check=False)
    assert again["actions"] == [f"{name} {WANTED}: held" for name in BOTH]
    assert have() == dict.fromkeys(BOTH, (WANTED, "hold"))
    finding = only(packages(nccl("2.22.3-1") | {"libnccl-dev": WANTED}))
    assert f"{distribution} with 2.22.3-1 does not count" in finding["found"]


@pytest.mark.long
def test_holds_of_others_are_left_alone(packages, last, have, restored):
    finding = only(packages({"libnccl-dev": OLDER}, owner="somebody"))
    assert "libnccl-dev : Depends: libnccl2" in finding["found"] or finding["check"] == "packages on hold"
    assert packages({}, check=False, owner="somebody")["changed"] is False
    assert have() == dict.fromkeys(BOTH, (WANTED, "hold"))
