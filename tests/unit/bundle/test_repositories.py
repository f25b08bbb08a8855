"""Packages with a repository of their own in a lock: what decides them, and whether a bundle has them."""

from ansible.module_utils.trainyard.bundle import repositories, site_lock, use
from test_site_lock import OF_HOSTS, REQUESTS, TWELVE, deb

NETWORK = {
    "provider": "network_repo",
    "uri": "http://m.example.org/debian12/x86_64",
    "label": "NVIDIA CUDA",
    "key_url": "http://m.example.org/key",
    "key_file": "",
    "fingerprints": ["AB"],
    "components": [],
    "origins": ["Debian"],
    "packages": [],
    "driver": {},
}
NCCL = {**NETWORK, "packages": [{"name": "libnccl2", "version": "2.21.5-1+cuda12.4"}]}
CUDA = {**NETWORK, "provider": "distro", "uri": "", "components": ["contrib", "non-free"],
        "packages": [{"names": ["nvidia-cuda-toolkit"], "version": "", "begins": "11.8"}]}  # fmt: skip
DRIVER = {
    **NETWORK,
    "driver": {
        "roots": [["cuda-drivers-550", "cuda-drivers"]],
        "optional": [["nvidia-fabricmanager-550"]],
        "pinning": ["nvidia-driver-pinning-550.54.15", "nvidia-driver-pinning-550"],
        "version": "550.54.15",
        "branch": "550",
    },
}


def requests(**of_host):
    """Return the requests of the usual hosts; `n1=[NCCL]` gives a host repositories."""
    return {
        host: {
            **parts,
            **{f"{each['provider']} {bool(each['driver'])}": {"repository": each} for each in of_host.get(host, ())},
        }
        for host, parts in REQUESTS.items()
    }


def locked(asked, old=None, version="1.0", absent=()):
    wanted = {system: each for system, each in site_lock.wanted(asked, OF_HOSTS).items() if system == TWELVE}
    kept = site_lock.unchanged(old, wanted)
    wheels = {(TWELVE, "pytorch"): []}
    return site_lock.lock(
        wanted, kept, {TWELVE: [deb("libnccl2", version)]}, wheels, asked, None, {TWELVE: list(absent)}
    )


def packages(lock):
    return lock["systems"][str(TWELVE)]["packages"]


def test_each_line_says_what_is_asked_and_no_address():
    assert repositories.lines([NCCL, CUDA, DRIVER]) == [
        "driver 550.54.15: cuda-drivers-550|cuda-drivers [nvidia-fabricmanager-550] nvidia-driver-pinning-550.54.15"
        " (network_repo)",
        "libnccl2=2.21.5-1+cuda12.4 (network_repo)",
        "nvidia-cuda-toolkit=11.8* (distro)",
    ]
    newest = {**DRIVER, "driver": {**DRIVER["driver"], "version": "", "optional": [], "pinning": []}}
    assert repositories.lines([newest]) == ["driver 550*: cuda-drivers-550|cuda-drivers (network_repo)"]


def test_equal_hosts_are_one_kind_and_others_each_count():
    (wanted,) = [
        each for system, each in site_lock.wanted(requests(n1=[NCCL], n2=[NCCL]), OF_HOSTS).items() if system == TWELVE
    ]
    assert wanted.further == [[NCCL]]
    assert site_lock.wanted(requests(n1=[NCCL], n2=[DRIVER]), OF_HOSTS)[TWELVE].further == [[NCCL], [DRIVER]]
    # A host without NVIDIA's packages is of no further kind.
    assert site_lock.wanted(requests(n1=[NETWORK]), OF_HOSTS)[TWELVE].further == []
    assert repositories.components([NCCL, CUDA]) == ["contrib", "non-free"]
    assert repositories.of_network([NCCL, DRIVER, CUDA]) == [DRIVER]


def test_a_lock_stays_until_another_version_or_provider_is_asked_for():
    old = locked(requests(n1=[NCCL]))
    assert packages(old)["further"] == [["libnccl2=2.21.5-1+cuda12.4 (network_repo)"]]
    mirror = {**NCCL, "uri": "http://other.example.org", "fingerprints": ["CD"]}
    assert locked(requests(n1=[mirror]), old=old, version="9") == old
    newer = {**NCCL, "packages": [{"name": "libnccl2", "version": "2.28.9-1+cuda13.0"}]}
    for asked in (requests(n1=[newer]), requests(n1=[{**NCCL, "provider": "distro"}]), requests(n1=[NCCL], n2=[CUDA])):
        assert packages(locked(asked, old=old, version="9"))["files"][0]["version"] == "9"


def test_what_the_system_lacks_and_what_only_a_visit_shows_is_missing():
    asked = requests()
    headers = {"what": "headers of the running kernel", "why": "unknown"}
    asked["n1"]["nvidia_driver"] = {"missing": [headers], "optional_packages": ["linux-headers-6.1.0-9-amd64"]}
    asked["n2"]["nvidia_driver"] = {"missing": [headers]}
    absent = {"what": "linux-headers-6.1.0-9-amd64", "why": "the mirror has no such package"}
    old = locked(asked, absent=[absent])
    assert packages(old)["optional"] == ["linux-headers-6.1.0-9-amd64"]
    assert old["missing"] == [{"what": "headers of the running kernel of n1, n2", "why": "unknown"}, absent]
    assert locked(asked, old=old) == old


def test_a_bundle_has_what_one_kind_of_host_gets_together():
    lock = locked(requests(n1=[NCCL, CUDA], n2=[DRIVER]))

    def found(**of_host):
        asked = requests(**of_host)
        return [(each.host, each.found) for each in use.fit(lock, {"n1": asked["n1"], "n2": asked["n2"]}, OF_HOSTS)]

    assert found() == found(n1=[NCCL]) == found(n1=[NCCL], n2=[DRIVER]) == []
    newer = {**NCCL, "packages": [{"name": "libnccl2", "version": "2.28.9-1+cuda13.0"}]}
    assert found(n1=[newer]) == [("n1", "no libnccl2=2.28.9-1+cuda13.0 (network_repo) for debian-12-x86_64")]
    # Each was resolved without the other, so that they need not fit together.
    (first, second) = found(n1=[DRIVER, NCCL], n2=[DRIVER, NCCL])
    assert (first[0], second[0]) == ("n1", "n2") and first[1] == second[1]
    assert "driver 550.54.15" in first[1] and "libnccl2" in first[1]


def test_two_versions_of_a_package_are_one_line():
    lock = locked(requests(n1=[NCCL]))
    packages(lock)["files"].append({**packages(lock)["files"][0], "version": "2.0"})
    assert site_lock.entries(lock)[str(TWELVE), "", "libnccl2"] == "1.0, 2.0"
