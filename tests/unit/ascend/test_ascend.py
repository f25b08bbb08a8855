"""The role ascend: version files, which packages go where, and the check of all nodes.

Version files are those that users and the vendor's guides published.
"""

from __future__ import annotations

import json

import ascend_state
import pytest
import yaml
from ansible.module_utils.testing import patch_module_args
from ansible.module_utils.trainyard.ascend import ascend_software
from ansible.module_utils.trainyard.ascend.ascend_answers import STATE
from ansible.module_utils.trainyard_node.ascend.ascend_state import read_ascend
from ansible.module_utils.trainyard_node.machine.tree import Tree
from captured_tree import unfold
from filters import declared, fitting, of_hosts
from hypothesis import given
from hypothesis import strategies as st

DRIVER = """\
Version=25.0.rc1.1
ascendhal_version=7.35.23
aicpu_version=1.0
Innerversion=V100R001C21SPC002B220
compatible_version=[V100R001C17],[V100R001C18],[V100R001C19],[V100R001C20],[V100R001C21]
compatible_version_fw=[7.0.0,7.7.99]
package_version=25.0.rc1.1
"""
FIRMWARE = """\
Version=7.7.0.1.231
firmware_version=1.0
package_version=25.0.rc1.1
compatible_version_drv=[23.0.0,23.0.0.],[24.0,24.0.],[24.1,24.1.],[25.0,25.0.]
"""
TOOLKIT = """\
package_name=Ascend-cann-toolkit
version=8.2.RC1
innerversion=V100R001C22SPC001B231
compatible_version=[V100R001C15],[V100R001C18],[V100R001C23]
arch=aarch64
os=linux
path=/usr/local/Ascend/ascend-toolkit/8.2.RC1/aarch64-linux
"""
BOARD = """\
        NPU ID                         : 0
        Software Version               : 23.0.5
        Firmware Version               : 7.1.0.7.220
        Compatibility                  : OK
        PCIe Bus Info                  : 0000:61:00.0
        Class ID                       : NA
"""
INSTALL_INFO = """\
UserName=HwHiAiUser
UserGroup=HwHiAiUser
Firmware_Install_Type=full
Firmware_Install_Path_Param=/opt/Ascend
Driver_Install_Type=full
Driver_Install_Path_Param=/opt/Ascend
Driver_Install_For_All=yes
"""
SHA = "ab" * 32


def package(component="driver", version="24.1.0", **changes):
    return {"component": component, "version": version, "file": f"{component}.run", "sha256": SHA, **changes}


def devices(host=1, number=8, **changes):
    return [
        {
            "index": index,
            "physical_id": index,
            "device_ip": f"192.168.{100 + index}.{host}",
            "health": "OK",
            "link": "up",
            "net_health": "Success",
            "super_device_id": "",
            "visible": True,
            **changes,
        }
        for index in range(number)
    ]


def machine_state(host=1, **changes):
    return {
        "host": f"n{host}",
        "machine": "aarch64",
        "npu": {"chip": "910b", "super_pod_id": "", "devices": devices(host), "problems": [], "notes": []},
        "driver": "24.1.0",
        "running_driver": "24.1.0",
        "firmware": "7.5.0.3.220",
        "boards": [{"card": 0, "firmware": "7.5.0.3.220", "compatibility": "OK"}],
        "cann": "8.0.0",
        "cann_path": "/usr/local/Ascend/ascend-toolkit/8.0.0/aarch64-linux",
        "cann_homes": ["/usr/local/Ascend/ascend-toolkit/latest", "/usr/local/Ascend/ascend-toolkit/8.0.0"],
        "set_env": "/usr/local/Ascend/ascend-toolkit/set_env.sh",
        "restart_due": [],
        "installed": {},
        **changes,
    }


def state(host=1, **changes):
    return declared(machine_state(host, **changes), STATE)


def with_devices(host, listed, **changes):
    return state(host, npu={**state()["npu"], "devices": listed, **changes})


def check(*states, **required):
    found = ascend_software.verify(
        states, {"devices": 0, "driver": "", "firmware": "", "cann": "", "net_health": ["Success"], **required}
    )
    return [(one.host, one.check, one.found, one.expected) for one in found]


def test_version_files_are_read():
    assert ascend_software.driver_version(DRIVER) == "25.0.rc1.1"
    assert ascend_software.driver_version("Version=7.35.23\npackage_version=26.0.rc1\n") == "26.0.rc1"
    assert ascend_software.driver_version("Version=24.1.rc1\n") == "24.1.rc1"
    assert ascend_software.driver_version(None) == ""
    assert ascend_software.read_fields(FIRMWARE)["version"] == "7.7.0.1.231"


def test_the_running_firmware_is_read():
    assert ascend_software.board(BOARD) == {"firmware": "7.1.0.7.220", "compatibility": "OK"}
    assert ascend_software.board(BOARD.replace("7.1.0.7.220", "NA")) == {"firmware": "", "compatibility": "OK"}
    assert ascend_software.board("dcmi module initialize failed. ret is -8005") == {"firmware": "", "compatibility": ""}


def test_a_new_node_gets_the_driver_first():
    bare = state(driver="", firmware="", cann="", set_env="")
    requested = [
        package("toolkit", "8.0.0"),
        package("firmware", "7.5.0.3.220"),
        package("kernels", "8.0.0"),
        package(),
    ]
    plan, findings = ascend_software.plan_packages(
        [{"state": bare, "packages": requested}], ascend_software.DEFAULT_ROOT
    )
    assert findings == []
    assert [(one["component"], one["arguments"]) for one in plan["n1"]] == [
        ("driver", ["--full", "--quiet", "--install-for-all"]),
        ("firmware", ["--full", "--quiet"]),
        ("toolkit", ["--install", "--quiet", "--install-for-all"]),
        ("kernels", ["--install", "--quiet", "--install-for-all"]),
    ]


def test_an_upgrade_begins_with_the_firmware():
    requested = [package(version="25.0.rc1.1"), package("firmware", "7.7.0.1.231"), package("toolkit", "8.0.0")]
    plan, findings = ascend_software.plan_packages(
        [{"state": state(), "packages": requested}], ascend_software.DEFAULT_ROOT
    )
    assert findings == []
    assert [(one["component"], one["found"], one["arguments"][0]) for one in plan["n1"]] == [
        ("firmware", "7.5.0.3.220", "--upgrade"),
        ("driver", "24.1.0", "--upgrade"),
    ]


def test_an_installed_component_is_not_installed_again():
    requested = [
        package(),
        package("firmware", "7.5.0.3.220"),
        package("toolkit", "8.0.0"),
        package("kernels", "8.0.0"),
    ]
    there = state(installed={"kernels": {"version": "8.0.0", "sha256": SHA}})
    assert ascend_software.plan_packages([{"state": there, "packages": requested}], ascend_software.DEFAULT_ROOT) == (
        {"n1": []},
        [],
    )
    other = state(installed={"kernels": {"version": "8.0.0", "sha256": "cd" * 32}})
    plan, _ = ascend_software.plan_packages([{"state": other, "packages": requested}], ascend_software.DEFAULT_ROOT)
    assert [one["component"] for one in plan["n1"]] == ["kernels"]


def test_another_folder_and_other_arguments():
    requested = [package("toolkit", "8.2.RC1"), package("kernels", "8.2.RC1", arguments=["--devel"])]
    plan, _ = ascend_software.plan_packages([{"state": state(), "packages": requested}], "/opt/Ascend")
    assert plan["n1"][0]["arguments"][-1] == "--install-path=/opt/Ascend"
    assert plan["n1"][1]["arguments"] == ["--devel"]


@pytest.mark.parametrize(
    ("wrong", "found"),
    [
        ([package("nnrt")], "component 'nnrt'"),
        ([package(sha256="latest")], "sha256 'latest' of driver"),
        ([{"component": "driver", "version": "1", "file": "x.run"}], "sha256 '' of driver"),
        ([package(version="")], "no version of driver"),
        ([package(file="/srv/driver.run")], "file '/srv/driver.run' of driver"),
        ([package(file="")], "file '' of driver"),
        ([package(), package(version="25.0")], "2 packages of the component driver"),
        (
            [package(file="Ascend-hdk-910b-npu-driver_24.1.0_linux-x86-64.run")],
            "Ascend-hdk-910b-npu-driver_24.1.0_linux-x86-64.run for x86_64 on a node that is aarch64",
        ),
    ],
)
def test_wrong_packages_are_named_and_nothing_is_planned(wrong, found):
    plan, findings = ascend_software.plan_packages(
        [{"state": state(1, driver=""), "packages": wrong}, {"state": state(2), "packages": []}],
        ascend_software.DEFAULT_ROOT,
    )
    assert [(one.host, one.found) for one in findings] == [("n1", found)]
    assert plan == {"n1": [], "n2": []}


def test_findings_on_all_packages_come_at_once():
    wrong = [package("nnrt", sha256=""), package("firmware", version="")]
    _, findings = ascend_software.plan_packages([{"state": state(), "packages": wrong}], ascend_software.DEFAULT_ROOT)
    assert len(findings) == 3


def test_equal_and_sound_nodes_pass():
    assert check(state(1), state(2), state(3)) == []
    assert check(state(1), state(2), devices=8, driver="24.1.0", firmware="7.5.0.3.220", cann="8.0.0") == []


def test_versions_that_differ_or_are_missing():
    found = check(state(1), state(2, driver="23.0.7", running_driver="23.0.7"), state(3, cann="", set_env=""), state(4))
    assert found == [
        ("n2", "Ascend driver", "23.0.7", "24.1.0, as on n1, n3, n4"),
        ("n3", "Ascend CANN", "none", "8.0.0, as on n1, n2, n4"),
    ]
    assert check(state(1), state(2), firmware="7.7.0.1.231") == [
        ("n1", "Ascend firmware", "7.5.0.3.220", "7.7.0.1.231"),
        ("n2", "Ascend firmware", "7.5.0.3.220", "7.7.0.1.231"),
    ]


def test_components_that_wait_for_a_restart_are_reported():
    cases = [
        machine_state(1, running_driver="23.0.7"),
        machine_state(2, boards=[{"card": 1, "firmware": "7.1.0.7.220", "compatibility": "OK"}]),
        machine_state(3, running_driver="", boards=[{"card": 0, "firmware": "", "compatibility": ""}]),
    ]
    assert [ascend_software.restart_due(case) for case in cases] == [
        ["driver 23.0.7 runs, 24.1.0 is installed"],
        ["firmware 7.1.0.7.220 runs, 7.5.0.3.220 is installed"],
        [],
    ]
    assert check(state(1, restart_due=["driver 23.0.7 runs, 24.1.0 is installed"])) == [
        ("n1", "restart", "driver 23.0.7 runs, 24.1.0 is installed", "what is installed runs")
    ]


def test_a_driver_that_does_not_fit_the_firmware_is_a_finding():
    odd = [{"card": 0, "firmware": "7.5.0.3.220", "compatibility": "NOT OK"}]
    assert [one[1:3] for one in check(state(boards=odd))] == [
        ("compatibility", "npu-smi reports NOT OK for driver 24.1.0 and firmware 7.5.0.3.220")
    ]


def test_set_env_must_be_there_and_lead_the_training_user_to_the_toolkit():
    home = "/usr/local/Ascend/ascend-toolkit/latest"
    assert check(state(toolkit_home=home)) == []
    assert check(state(toolkit_home=""))[0][2] == (
        "/usr/local/Ascend/ascend-toolkit/set_env.sh leads the training user to no toolkit"
    )
    assert check(state(toolkit_home="/home/train/Ascend"))[0][1] == "set_env.sh"
    assert check(state(set_env=""))[0][2].startswith("none for CANN 8.0.0 in /usr/local/Ascend/")


def test_a_training_user_outside_the_vendors_group():
    assert check(state(user_devices=8)) == []
    assert check(state(user_devices=0)) == [("n1", "training user", "npu-smi lists 0 devices for it", "8, as for root")]


def test_a_node_without_devices():
    none = state(2, npu={}, running_driver="", boards=[])
    broken = with_devices(3, [], problems=["npu-smi exited with status 255: dcmi module initialize failed"], chip="")
    found = check(state(1), none, broken)
    assert [one[:3] for one in found] == [
        ("n2", "Ascend devices", "none: npu-smi is not installed and PCI shows none"),
        ("n3", "Ascend devices", "npu-smi exited with status 255: dcmi module initialize failed"),
    ]


def test_numbers_and_chips_that_differ():
    found = check(state(1), state(2), with_devices(3, devices(3, 7)), with_devices(4, devices(4), chip="910"))
    assert [one[:3] for one in found] == [("n3", "number of devices", "7 devices"), ("n4", "chip", "910")]
    assert [one[3] for one in check(state(1), devices=16)] == ["16 devices"]


def test_a_problem_of_a_node_is_a_finding():
    text = "the link of device 3 (physical id) is down, expected up: check cable"
    assert check(with_devices(1, devices(), problems=[text]))[0][:3] == ("n1", "Ascend devices", text)


def test_a_link_that_is_not_known_is_no_pass():
    note = "the link of devices 0 (physical id) is unknown: hccn_tool is not installed or was not called"
    listed = devices()
    listed[0] = {**listed[0], "link": "unknown"}
    assert check(with_devices(1, listed, notes=["another", note]))[0][1:3] == ("link", note)


def test_a_network_health_that_is_not_known_may_be_accepted():
    listed = devices()
    listed[2], listed[5] = ({**listed[place], "net_health": "Init"} for place in (2, 5))
    assert check(with_devices(1, listed))[0][1:] == (
        "network health",
        "`Init` for devices 2, 5 (physical id)",
        "Success",
    )
    assert check(with_devices(1, listed), net_health=["Success", "Init"]) == []


def test_an_address_that_two_nodes_have():
    found = check(state(1), with_devices(2, [*devices(2)[:7], {**devices(1)[7]}]))
    assert found == [("", "device address", "192.168.107.1 on n1, n2", "each address once in the cluster")]


def test_two_families_of_addresses():
    six = [{**one, "device_ip": f"fdf8::{one['index'] + 1}"} for one in devices(2)]
    assert check(state(1), with_devices(2, six))[0][2] == "IPv4 on n1; IPv6 on n2"


def local(host, form="169.254.{}.{}", of=range(8)):
    """A node whose devices `of` have link-local addresses."""
    changed = [
        {**one, "device_ip": form.format(host + 1, one["index"] + 1)} if one["index"] in of else one
        for one in devices(host)
    ]
    return with_devices(host, changed)


def remarked(*states):
    """The remarks on link-local addresses, which stop nothing."""
    assert check(*states) == []
    return [(one["check"], one["found"], one["expected"]) for one in of_hosts("ascend_remarks", list(states))]


def test_link_local_addresses_on_all_nodes_are_one_switch():
    assert remarked(local(1), local(2)) == []
    assert remarked(local(1, of=[3]), local(2, of=[3])) == []
    assert remarked(local(1, "fe80::{}:{}")) == []


def test_link_local_addresses_that_other_nodes_do_not_reach_are_remarks():
    expected = "addresses that the same devices of the other nodes reach: no router forwards link-local ones"
    for found, states in (
        ("link-local addresses of device 7 on n2", (state(1), local(2, of=[7]))),
        ("link-local addresses of devices 0, 1 on n1, n2", (local(1, of=[0, 1]), local(2, of=[0, 1]), state(3))),
    ):
        assert remarked(*states) == [("device address", found, expected)]
    (six,) = remarked(local(1, "fe80::{}:{}"), local(2, "fe80::{}:{}"))
    assert six[1] == "link-local addresses of devices 0, 1, 2, 3, 4, 5, 6, 7 on n1, n2"


def test_an_a3_without_addresses_passes():
    listed = [{**one, "device_ip": "", "link": "down", "net_health": ""} for one in devices(1, 16)]
    assert check(with_devices(1, listed, chip="a3"), with_devices(2, listed, chip="a3")) == []


@given(st.text())
def test_any_version_file_is_read(text):
    assert isinstance(ascend_software.driver_version(text), str)
    assert set(ascend_software.board(text)) == {"firmware", "compatibility"}


@pytest.fixture
def machine(tmp_path):
    root = unfold("ascend8", tmp_path)

    def write(path, text):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)

    write("usr/local/Ascend/driver/version.info", DRIVER)
    write("usr/local/Ascend/firmware/version.info", FIRMWARE)
    write("usr/local/Ascend/ascend-toolkit/latest/aarch64-linux/ascend_toolkit_install.info", TOOLKIT)
    write("usr/local/Ascend/ascend-toolkit/set_env.sh", "")
    write("usr/local/Ascend/.trainyard/kernels.json", json.dumps({"version": "8.2.RC1", "sha256": SHA}))
    for card in range(8):
        write(f"commands/npu-smi.board.{card}.out", BOARD)
    return root


def test_the_state_of_a_node(machine):
    found = fitting(read_ascend(Tree(str(machine)), "/usr/local/Ascend"), STATE)
    assert len(found["npu"]["devices"]) == 8
    assert (found["driver"], found["running_driver"], found["firmware"]) == ("25.0.rc1.1", "24.1.0", "7.7.0.1.231")
    assert found["boards"][7] == {"card": 7, "firmware": "7.1.0.7.220", "compatibility": "OK"}
    assert (found["cann"], found["set_env"]) == ("8.2.RC1", "/usr/local/Ascend/ascend-toolkit/set_env.sh")
    assert found["cann_homes"] == [
        "/usr/local/Ascend/ascend-toolkit/latest",
        "/usr/local/Ascend/ascend-toolkit/8.2.RC1",
    ]
    assert found["installed"] == {"kernels": {"version": "8.2.RC1", "sha256": SHA}}
    assert len(found["restart_due"]) == 2


def test_the_state_names_what_the_installer_wrote_down(machine):
    etc = machine / "etc"
    etc.mkdir()
    (etc / "ascend_install.info").write_text(INSTALL_INFO)
    (machine / "opt").mkdir()
    (machine / "usr/local/Ascend/driver").rename(machine / "driver")
    (machine / "opt/Ascend").mkdir()
    (machine / "driver").rename(machine / "opt/Ascend/driver")
    found = fitting(read_ascend(Tree(str(machine)), "/usr/local/Ascend"), STATE)
    assert (found["driver"], found["firmware"]) == ("25.0.rc1.1", "")


def test_cann_of_8_5_and_newer_has_another_folder(machine):
    home = machine / "usr/local/Ascend/cann/aarch64-linux"
    home.mkdir(parents=True)
    text = TOOLKIT.replace("8.2.RC1", "8.5.0").replace("ascend-toolkit/8.5.0", "cann-8.5.0")
    (home / "ascend_toolkit_install.info").write_text(text)
    (home.parent / "set_env.sh").write_text("")
    found = fitting(read_ascend(Tree(str(machine)), "/usr/local/Ascend"), STATE)
    assert (found["cann"], found["set_env"]) == ("8.5.0", "/usr/local/Ascend/cann/set_env.sh")
    assert found["cann_homes"] == ["/usr/local/Ascend/cann", "/usr/local/Ascend/cann-8.5.0"]


def run(module, capsys, **params):
    with patch_module_args(params), pytest.raises(SystemExit) as ended:
        module.main()
    result = json.loads(capsys.readouterr().out)
    assert (ended.value.code, result["changed"]) == (0, False)
    return result


def test_installed_components_are_planned_and_checked(machine, capsys):
    found = run(ascend_state, capsys, root=str(machine))["state"]
    requested = {"state": found, "packages": [package(version="25.0.rc1.1")]}
    plan = of_hosts("ascend_plan", {"n1": requested}, "/usr/local/Ascend")
    assert (plan["nodes"], plan["findings"]) == ({"n1": []}, [])
    equal = {"devices": 0, "driver": "", "firmware": "", "cann": "", "net_health": ["Success"]}
    assert [one["check"] for one in of_hosts("ascend_findings", {"n1": found}, equal)] == ["restart", "restart"]
    described = yaml.safe_load(ascend_state.RETURN)["state"]["description"]
    assert [name for name in found if f"C({name})" not in described] == []


def test_a_lock_takes_packages_of_a_mirror_and_names_those_of_the_controller():
    packages = [{"component": "driver", "version": "24.1.0", "file": "driver.run", "sha256": "ab"}]
    at_a_mirror = {"what": "Ascend driver 24.1.0", "url": "https://m.example.org/a/driver.run", "sha256": "ab"}
    assert ascend_software.request(packages, "https://m.example.org/a/") == {"sources": [at_a_mirror], "missing": []}
    (missing,) = ascend_software.request(packages, "/srv/ascend")["missing"]
    assert missing["what"] == "Ascend driver 24.1.0" and "/srv/ascend" in missing["why"]
    # Input that is wrong is the role's to refuse.
    assert ascend_software.request([{}], "")["missing"][0]["what"] == "Ascend"
