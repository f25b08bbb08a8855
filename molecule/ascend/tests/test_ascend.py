"""What ascend promises: devices, addresses, links and software that are sound and equal, or who is odd and why.

npu-smi, hccn_tool and the vendor's packages are replays; the role, its modules and the nodes are real.
"""

import pytest
from lab_jobs import host_list

ROOT = "/usr/local/Ascend"
NOT_READY = "Ascend devices are not ready on all nodes:"
UPGRADE = [
    {"component": "driver", "version": "25.0.rc1.1", "file": "driver-25.run"},
    {"component": "firmware", "version": "7.7.0.1.231", "file": "firmware-7.7.run"},
]
KERNELS = "Ascend-cann-kernels-910b_8.0.0_linux.run"
# The lab's nodes share the kernel, and so its boot id, with the machine.
BOOT_TIME = "stat -c %Z /proc/1"


@pytest.fixture
def alter(last):
    """Return a function that runs a shell command on the last node; what is replayed there is put back afterwards."""
    last.check_output(f"sudo tar -cf /root/replay.tar {ROOT} /etc/hccn.conf")
    yield lambda command: last.check_output(f"sudo sh -ec '{command}'")
    last.check_output(f"sudo rm -r {ROOT} && sudo tar -C / -xf /root/replay.tar && sudo rm /root/replay.tar")


def test_npu_info_reads_the_devices_in_check_mode_too(host, node_names):
    node = node_names.index(host.backend.get_hostname()) + 1
    found = host.ansible("npu_info", check=node > 1, become=True)
    assert not found["changed"]
    assert (found["npu"]["chip"], found["npu"]["problems"], found["npu"]["notes"]) == ("910b", [], [])
    assert [(one["physical_id"], one["device_ip"], one["link"]) for one in found["npu"]["devices"]] == [
        (device, f"192.168.{100 + device}.{node}", "up") for device in range(8)
    ]


def test_the_training_user_sees_the_devices(host):
    assert "HwHiAiUser" in host.user("train").groups
    assert host.run("sudo --user=train npu-smi info").rc == 0
    assert "dcmi module initialize failed" in host.check_output("sudo --user=nobody npu-smi info || true")


def test_the_check_passes_and_changes_nothing(run_playbook):
    done = run_playbook("changed.yml", step="verify", ascend_devices=8, ascend_cann_version="8.0.0").expect(0)
    assert set(done.changes.values()) == {0}


def test_findings_on_devices_and_network_come_at_once(run_playbook, alter, last_name, node_names):
    alter(f'printf "LINK_3=DOWN\\nHEALTH_6=Alarm\\nNET_HEALTH_2=Fault\\nNET_HEALTH_4=Init\\n" >>{ROOT}/replay.conf')
    alter('sed -i "/address_5=/d; s/^address_0=.*/address_0=192.168.100.1/" /etc/hccn.conf')
    run_playbook("changed.yml", step="verify").fails(
        f"{NOT_READY} 3 findings. 1. Ascend devices on {last_name} found {last_name}: NPU 6 (910B3): health",
        "is `Alarm`, expected `OK`",
        "device 5 (physical id) has no network address: hccn_tool printed `Get ipconf failed, because no ip was preset "
        "there!`, and /etc/hccn.conf has no address_5; set it with",
        "the link of device 3 (physical id) is down, expected up: check cable, optical module and switch port",
        "the network health of device 2 (physical id) is `Fault`, expected `Success`: check gateway",
        f"2. network health on {last_name} found `Init` for devices 4 (physical id) expected Success do give",
        f"3. device address found 192.168.100.1 on {node_names[0]}, {last_name} expected each address once",
    )


def test_findings_on_software_come_at_once(run_playbook, alter, last, last_name, node_names):
    """The check repairs nothing; the role then makes the training user a member again."""
    alter(f"rm {ROOT}/driver/tools/hccn_tool; chmod 0600 {ROOT}/ascend-toolkit/set_env.sh; gpasswd -d train HwHiAiUser")
    alter(
        f"sed -i s/^DRIVER=.*/DRIVER=23.0.7/ {ROOT}/replay.running;"
        f"sed -i /^Version/s/7.5/7.1/ {ROOT}/firmware/version.info"
    )
    done = run_playbook("changed.yml", step="verify").fails(
        f"1. link on {last_name} found the link of devices 0, 1, 2, 3, 4, 5, 6, 7 (physical id) is unknown: hccn_tool",
        f"training user on {last_name} found npu-smi lists 0 devices for it expected 8, as for root do add it",
        f"Ascend firmware on {last_name} found 7.1.0.3.220 expected 7.5.0.3.220, as on {host_list(node_names[:-1])} do",
        f"restart on {last_name} found {last_name}: driver 23.0.7 runs, 24.1.0 is installed {last_name}: firmware",
        f"set_env.sh on {last_name} found {ROOT}/ascend-toolkit/set_env.sh leads the training user to no toolkit",
    )
    assert "have no network address" not in done.text, "/etc/hccn.conf has them"
    assert "HwHiAiUser" not in last.user("train").groups


def test_the_role_makes_the_training_user_a_member_again(run_playbook, last, last_name, node_names):
    last.run("sudo gpasswd -d train HwHiAiUser")
    done = run_playbook("changed.yml").expect(0)
    assert done.changes == {name: int(name == last_name) for name in node_names}


def test_a_node_without_devices_is_named(run_playbook, alter, last_name):
    alter("mv /usr/local/sbin/npu-smi /root/npu-smi")
    try:
        done = run_playbook("changed.yml", step="verify")
    finally:
        alter("mv /root/npu-smi /usr/local/sbin/npu-smi")
    done.fails(f"Ascend devices on {last_name} found none: npu-smi is not installed and PCI shows none")


@pytest.mark.long
def test_an_installer_that_fails_is_quoted(run_playbook, alter, last_name):
    fails = [{"component": "driver", "version": "25.0.rc1.1", "file": "broken.run", "fails": True}]
    run_playbook("changed.yml", "--limit", last_name, replay_packages=fails).fails(
        f"{last_name}: broken.run --upgrade --quiet --install-for-all ended with status 1, expected 0. Its output "
        "ended with: [driver] [ERROR]ERR_NO:0x0080;ERR_DES:kernel headers do not fit the running kernel. Its log on "
        "the node is /var/log/ascend_seclog/ascend_install.log."
    )


@pytest.mark.long
def test_sixteen_devices_of_a_super_pod(run_playbook, node, node_names):
    """Two chips on a card, physical ids of two digits, no network addresses."""
    two = node_names[:2]
    try:
        for name in two:
            node(name).check_output(
                f"sudo sh -ec 'cp -p {ROOT}/replay.conf /etc/hccn.conf /root; echo send_arp_status_0=1 >/etc/hccn.conf;"
                f'printf "MODEL=Ascend910\\nDEVICES=16\\nCARD_CHIPS=2\\n" >>{ROOT}/replay.conf\''
            )
        found = node(two[1]).ansible("npu_info", check=False, become=True)["npu"]
        done = run_playbook("changed.yml", "--limit", ",".join(two), step="verify", ascend_devices=16)
    finally:
        for name in two:
            node(name).check_output(f"sudo sh -ec 'mv /root/replay.conf {ROOT}/; mv /root/hccn.conf /etc/'")
    assert (found["chip"], found["super_pod_id"], found["problems"]) == ("a3", "0", [])
    assert [one["super_device_id"] for one in found["devices"]] == [str(2 * 262144 + device) for device in range(16)]
    assert done.rc == 0, done.output


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            {
                "ascend_source": "packages",
                "ascend_packages": [{"component": "driver"}],
                "ascend_manage_system": False,
                "ascend_root": "opt",
                "ascend_devices": -1,
                "ascend_net_health": [],
            },
            "2. input of ascend on n1, n2 found packages in ascend_packages, which only root may install, and "
            "trainyard_manage_system is false expected no packages do install them by hand and set ascend_packages: [] "
            "3. input of ascend on n1, n2 found ascend_root is 'opt' expected the folder",
        ),
        (
            {
                "ascend_source": "/proc/nowhere",
                "ascend_packages": [{"component": "driver", "version": "1", "file": "d.run", "sha256": "0" * 64}],
            },
            "/proc/nowhere/d.run on the controller does not exist. Correct ascend_source and file, or sha256 if it is",
        ),
    ],
)
def test_bad_input_is_refused_with_what_to_do(run_playbook, given, said):
    done = run_playbook("changed.yml", "--limit", "n1,n2", **given).fails(said)
    # A reported installation counts as a change, as in a preview; nothing was changed.
    assert set(done.changes.values()) == {int("/proc/nowhere" in said)}
