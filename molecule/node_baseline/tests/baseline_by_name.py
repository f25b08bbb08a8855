"""Sources of apt and limits that the site had before, which takes minutes."""

import re

import pytest
from test_node_baseline import changed_file, login_as_train, ssh_as_train


def test_limits_come_from_the_role_and_an_installers_loopback_name_is_removed(run_playbook, node, node_vars):
    """The limits are lower than the inherited ones, so only the role's files can cause them."""
    host = node("n1")
    try:
        with changed_file(host, "/etc/hosts", "127.0.1.1 n1.site.example n1 # by the installer"):
            before = host.check_output("cat /etc/hosts")
            low = {"node_baseline_nofile": 4321, "node_baseline_memlock": "64"}
            run_playbook("converge.yml", "--limit", "n1", **low).expect(0)
            assert host.check_output("cat /etc/hosts") == before.replace(
                "127.0.1.1 n1.site.example n1 # by", "127.0.1.1 n1.site.example # by"
            )
            assert node_vars["n1"]["ansible_host"] in host.check_output("getent hosts n1")
        service = host.check_output("sudo systemd-run -q --wait --pipe sh -c 'ulimit -Hl; ulimit -Hn'")
        assert service.split() == ["64", "4321"]
        with login_as_train(host):
            assert ssh_as_train(node_vars, "n1", "ulimit -Hl; ulimit -Hn; ulimit -Sn").split() == ["64", "4321", "4321"]
    finally:
        assert run_playbook("converge.yml", "--limit", "n1").rc == 0


@pytest.mark.mirrors
def test_apt_uses_the_sites_mirror_or_its_previous_sources(run_playbook, node, node_names):
    """The lab's own mirror serves as the site's mirror."""
    last = node_names[-1]
    host = node(last)
    had = host.check_output("cat /etc/apt/sources.list")
    mirror = re.search(r"^deb (?:\[[^\]]*\] )?(\S+?)/? [\w-]+ main", had, re.MULTILINE)[1].removesuffix("-security")

    def run(mirror, **given):
        return run_playbook("converge.yml", "--limit", last, node_baseline_apt_mirror=mirror, **given)

    try:
        none = run("http://127.0.0.1:9/debian")
        assert none.rc != 0 and f"{last}: apt cannot use http://127.0.0.1:9/debian and" in none.text, none.output
        assert host.check_output("ls /etc/apt/sources.list.d; cat /etc/apt/sources.list") == had
        run(f"{mirror}/").expect(0)
        assert f"{mirror}-security" in host.check_output("apt-cache policy")
        assert host.check_output("cat /etc/apt/sources.list.before-trainyard") == had
        assert run(f"{mirror}/").changes[last] == 0
    finally:
        host.check_output("sudo rm -f /etc/apt/sources.list.d/trainyard-mirror.sources")
        host.run("sudo mv /etc/apt/sources.list.before-trainyard /etc/apt/sources.list")
