"""What one node answers becomes no line of the files that all nodes of a Slurm cluster share, nor of a job's script."""

import base64

import pytest
from ansible.module_utils.trainyard.job import schedulers
from ansible.module_utils.trainyard.job.run.wire import answers as checked_answers
from ansible.module_utils.trainyard.job.schedulers import slurm
from ansible.module_utils.trainyard.job.schedulers.records import Source, Where
from ansible.module_utils.trainyard.slurm.change import SIGN
from ansible.module_utils.trainyard.slurm.configuration import ClusterSettings, nodes_of, obstacles
from ansible.module_utils.trainyard.slurm.confinement import confinement_findings
from ansible.module_utils.trainyard_controller.cluster.slurm_files import slurm_files
from ansible.module_utils.trainyard_controller.job.schedulers.submission import rendered

DESCRIBED = "NodeName=x CPUs=64 SocketsPerBoard=2 CoresPerSocket=16 ThreadsPerCore=2 RealMemory=257000"
EVIL = "n3\nProlog=/home/train/evil.sh\n#"
# A module may answer any of these instead of a text or a number.
ODD = [EVIL, "n3 Gres=gpu:9", "n3,n1", "n[1-3]", "n3(10.0.0.9)", "$(id)", "n3\r", "n3\x00", "\udcff", "-n3", "ALL",
       "default", "n" * 5000, "", None, 7, 10**5000, True, ["n3"], {"n3": 1}, 1.5]  # fmt: skip


def short(value):
    """Name a value in the id of a test; Python writes no number of thousands of digits."""
    return ascii(value)[:20] if isinstance(value, str) else type(value).__name__


def answers(host, **changed):
    """Return what the role registered on a host."""
    return {
        "name": host,
        "ansible_host": f"10.0.0.{host[-1]}",
        "ansible_facts": {"hostname": host},
        "__slurm_conf": {"failed": True},
        "__slurm_described": {"stdout": DESCRIBED},
        "__slurm_version": {"stdout": "slurm-wlm 22.05.8"},
        "__slurm_accelerators": {"accelerators": {"vendor": "nvidia", "devices": [{"index": 0}, {"index": 1}]}},
        **changed,
    }


def before(*hosts, states="", **settings):
    """Return the findings before anything is changed."""
    chosen = ClusterSettings(**{"name": "lab", "controller": "n1", "confinement": "none", **settings})
    return obstacles(chosen, nodes_of(hosts), states)


def found(*hosts, **settings):
    """Return the findings for the files, as hosts and checks, and the text of the files."""
    files, findings = slurm_files(ClusterSettings(**{"name": "lab", "controller": "n1", **settings}), nodes_of(hosts))
    return [(finding.host, finding.check) for finding in findings], "".join(files.values())


def test_the_answers_of_these_tests_are_right_without_a_change():
    findings, text = found(answers("n1"), answers("n2"), answers("n3"))
    assert findings == [] and "NodeName=n3 NodeHostname=n3 NodeAddr=10.0.0.3" in text


@pytest.mark.parametrize("value", ODD, ids=short)
def test_a_host_name_stays_one_word(value):
    hosts = [answers("n1"), answers("n2"), answers("n3", ansible_facts={"hostname": value})]
    findings, text = found(*hosts)
    assert {host for host, _ in findings} == {"n3"} and text == ""
    assert {finding.host for finding in before(*hosts)} == {"n3"}


@pytest.mark.parametrize("name", ["n3", "gpu-03", "gpu-03.example.org", "N3", "3"])
def test_host_names_in_use_are_right(name):
    findings, text = found(answers("n1"), answers("n3", ansible_facts={"hostname": name}))
    assert findings == [] and f" NodeHostname={name} " in text


@pytest.mark.parametrize("name", ["n1", "N1"])
def test_two_nodes_with_one_host_name_are_a_finding_on_both(name):
    findings, text = found(answers("n1"), answers("n2"), answers("n3", ansible_facts={"hostname": name}))
    assert {host for host, _ in findings} == {"n1", "n3"} and text == ""


def test_a_node_does_not_take_the_name_of_another_in_slurm():
    findings, _ = found(
        answers("n1"),
        answers("n2", ansible_facts={"hostname": "other"}),
        answers("n3", ansible_facts={"hostname": "n2"}),
    )
    assert {host for host, _ in findings} == {"n3"}


@pytest.mark.parametrize("value", [value for value in ODD if value not in ("", None)], ids=short)
def test_an_address_stays_one_word(value):
    findings, text = found(answers("n1"), answers("n3", ansible_host=value))
    assert {host for host, _ in findings} == {"n3"} and text == ""


@pytest.mark.parametrize("address", ["10.0.0.3", "node3.example.org", "fd00::3", "node_3"])
def test_addresses_in_use_are_right(address):
    findings, text = found(answers("n1"), answers("n3", ansible_host=address))
    assert findings == [] and f" NodeAddr={address} " in text


@pytest.mark.parametrize("name", ["CPUs", "SocketsPerBoard", "CoresPerSocket", "ThreadsPerCore", "RealMemory"])
@pytest.mark.parametrize("value", ["0", "-1", "65536000000000", "9" * 5000, "\u00b2", "\u0663", "1e3", "x", ""])
def test_numbers_of_slurmd_have_bounds(name, value):
    words = [f"{name}={value}" if word.startswith(f"{name}=") else word for word in DESCRIBED.split()]
    findings, text = found(answers("n1"), answers("n3", __slurm_described={"stdout": " ".join(words)}))
    assert findings == [("n3", "slurmd")] and text == ""


@pytest.mark.parametrize(
    "line",
    [
        # slurmctld holds a bit for each core.
        DESCRIBED.replace("SocketsPerBoard=2", "SocketsPerBoard=65000"),
        # The smallest share of a node is the default of all jobs, and 0 is no limit.
        DESCRIBED.replace("RealMemory=257000", "RealMemory=63"),
        "=" * 10**6,
        "a" * 10**6,
    ],
    ids=lambda line: line[:70],
)
def test_what_slurmd_says_is_possible(line):
    assert found(answers("n1"), answers("n3", __slurm_described={"stdout": line}))[0] == [("n3", "slurmd")]


@pytest.mark.parametrize(
    "devices",
    [
        [{"index": EVIL}],
        [{"index": "1"}],
        [{"index": -1}],
        [{"index": 10**5000}],
        [{"index": True}],
        [{"index": 1}, {"index": 1}],
        [{}],
        [None],
        "n3",
        {"index": 1},
        7,
        [{"index": index} for index in range(5000)],
    ],
    ids=lambda value: type(value).__name__,
)
def test_devices_are_whole_numbers(devices):
    accelerators = {"accelerators": {"vendor": "nvidia", "devices": devices}}
    findings, text = found(answers("n1"), answers("n3", __slurm_accelerators=accelerators))
    assert findings == [("n3", "accelerators")] and text == ""


@pytest.mark.parametrize("vendor", ODD, ids=short)
def test_a_vendor_is_one_that_slurm_gets(vendor):
    accelerators = {"accelerators": {"vendor": vendor, "devices": [{"index": 0}]}}
    findings, _ = found(answers("n1"), answers("n3", __slurm_accelerators=accelerators))
    assert findings == [("n3", "accelerators")]


@pytest.mark.parametrize(
    "version", ["", None, 7, EVIL, "slurm 22.05.8 (set slurm_controller: n3)", "slurm \u0662\u0662.05.8", "x" * 10**6]
)
def test_a_release_is_one_that_slurmd_prints(version):
    findings, _ = found(answers("n1"), answers("n3", __slurm_version={"stdout": version}))
    assert findings == [("n3", "slurmd")]
    # The others are compared with the release of the controller, if it has one.
    findings, _ = found(answers("n1", __slurm_version={"stdout": version}), answers("n3"))
    assert findings == [("n1", "slurmd")]


def conf_of(text):
    return {"content": base64.b64encode(text.encode(errors="surrogateescape")).decode()}


@pytest.mark.parametrize(
    "conf",
    [
        f"{SIGN}\nClusterName=lab;reboot\n",
        f"{SIGN}\nSlurmctldHost=$(reboot)(10.0.0.1)\n",
        f"{SIGN}\nClusterName={'x' * 10**6}\n",
        "not ours",
        f"{SIGN}\n\udcff",
    ],
    ids=lambda value: ascii(value[40:80]),
)
def test_the_present_configuration_has_names_or_is_a_finding(conf):
    findings = before(answers("n1"), answers("n3", __slurm_conf=conf_of(conf)))
    assert [(finding.host, finding.check) for finding in findings] == [("n3", "slurm.conf")]
    # People may paste the advice into a shell of root.
    assert not any(word in finding.action for finding in findings for word in ("reboot", "xxx"))


@pytest.mark.parametrize("content", ["%%%", "QQ", "é", 7, None, ["QQ=="], {"a": 1}])
def test_a_damaged_answer_is_no_exception(content):
    hosts = [answers("n1"), answers("n3", __slurm_conf={"content": content})]
    assert {finding.host for finding in before(*hosts)} | {host for host, _ in found(*hosts)[0]} <= {"n3"}


@pytest.mark.parametrize("key", ["ansible_facts", "__slurm_conf", "__slurm_cgroups", "__slurm_described",
                                 "__slurm_version", "__slurm_accelerators"])  # fmt: skip
@pytest.mark.parametrize("value", [None, 7, "x", ["x"], {}, {"stdout": 7}, {"stdout": ["x"]}, {"hostname": {}}])
def test_an_answer_of_another_shape_is_no_exception(key, value):
    hosts = [answers("n1"), answers("n3", **{key: value})]
    assert {finding.host for finding in before(*hosts)} | {host for host, _ in found(*hosts)[0]} <= {"n3"}


@pytest.mark.parametrize(
    "text", ["CapEff:", "CapEff: zz", "CapEff: " + "f" * 5000, "cgroup2 /sys/fs/cgroup", EVIL, "\x00"]
)
def test_damaged_mounts_are_no_exception(text):
    [finding] = confinement_findings([{"host": "n3", "cgroups": text}])
    assert finding.host == "n3" and "Prolog" not in finding.found


def test_devices_that_the_controller_remembers_for_others_are_its_own_finding():
    remembered = f"{SIGN}\nClusterName=lab\nSlurmctldHost=n1(10.0.0.1)\n"
    lines = [f"NodeName=n2 Gres=gpu:{count} State=UNKNOWN\n" for count in ("8", "9" * 5000, "8\rx")]
    for line in lines[:1]:
        assert found(answers("n1", __slurm_conf=conf_of(remembered + line)), answers("n2"))[0] == [("n1", "devices")]
    for line in lines[1:]:
        assert found(answers("n1", __slurm_conf=conf_of(remembered + line)), answers("n2"))[0] in (
            [],
            [("n1", "devices")],
        )
    # Those that another node remembers count for nothing.
    assert found(answers("n1"), answers("n2"), answers("n3", __slurm_conf=conf_of(remembered + lines[0])))[0] == []


def test_nodes_that_the_controller_lists_are_names_before_they_are_in_a_command():
    findings = before(answers("n1"), states="n2;reboot allocated\nn4 allocated\n$(id) mixed\n")
    assert {finding.host for finding in findings} == {"n1"}
    assert not any(word in finding.action for finding in findings for word in ("reboot", "$("))


@pytest.mark.parametrize("field", ["name", "partition"])
@pytest.mark.parametrize("value", [value for value in ODD if value is not None], ids=short)
def test_names_of_the_user_stay_one_word(field, value):
    findings, text = found(answers("n1"), **{field: value})
    assert findings and {host for host, _ in findings} == {""} and text == ""


@pytest.mark.parametrize("field", ["health_program", "epilog"])
@pytest.mark.parametrize("value", ["epilog.sh", "/a b", f"/{EVIL}", "/a#", "/a*", 7, None])
def test_paths_stay_one_word(field, value):
    findings, text = found(answers("n1"), **{field: value})
    assert findings and {host for host, _ in findings} == {""} and text == ""


@pytest.mark.parametrize("field", ["node_timeout_s", "requeue_wait_s", "health_interval_s"])
@pytest.mark.parametrize("value", [-1, 65534, 10**5000, "60", EVIL, True, None], ids=short)
def test_times_have_bounds(field, value):
    findings, text = found(answers("n1"), **{field: value})
    assert findings and {host for host, _ in findings} == {""} and text == ""


@pytest.mark.parametrize("host", ["n 3", "n3\nProlog=/x", "DEFAULT", "all", "n[1-3]", "n1,n3"])
def test_a_name_of_the_inventory_stays_one_word(host):
    findings, text = found(answers("n1"), answers("n3", name=host))
    assert {where for where, _ in findings} == {host} and text == ""


# A login host may answer any of these instead of a number of scontrol.
NUMBERS = ["9" * 5000, "\u00b2", "\u0663", "-1", "", "x-1:00:00", "1-x", "gpu:1\n#SBATCH --uid=0"]


@pytest.mark.parametrize("value", NUMBERS, ids=short)
@pytest.mark.parametrize(
    ("record", "field"),
    [
        ("partitions", "MaxTime"),
        ("partitions", "MaxNodes"),
        ("partitions", "TotalNodes"),
        ("nodes", "CPUTot"),
        ("nodes", "Gres"),
    ],
)
def test_what_a_login_host_answers_becomes_no_line_of_a_script(record, field, value):
    partition = {"PartitionName": "train", "State": "UP", "Default": "YES", "MaxTime": "1-00:00:00",
                 "MaxNodes": "UNLIMITED", "TotalNodes": "2"}  # fmt: skip
    node = {"NodeName": "n1", "State": "IDLE", "CPUTot": "4", "Gres": "gpu:2", "Partitions": "train", "Reason": ""}
    facts = {"partitions": [partition], "nodes": [node, {**node, "NodeName": "n2"}], "folder_writable": True}
    facts[record][0][field] = value
    job, _ = schedulers.parse({"job_name": "digits", "job_command": ["true"], "job_nodes": 2, "job_devices": "auto",
                               "job_scheduler": "slurm"})  # fmt: skip
    where = Where("digits-1", "", "login", "/var/lib/trainyard", "train", ("n1", "n2"), ("n1", "n2", "login"))
    plan, findings = slurm.plan(job, facts, Source([], b""), where)
    script = rendered(plan, {}, where, "", Source([], b""))[0].submitted["job.sbatch"]
    assert "--uid" not in script and all(len(line) < 1000 for line in script.splitlines())
    assert all(len(finding.found) < 400 for finding in findings)


@pytest.mark.parametrize("record", ["partitions", "nodes"])
def test_a_record_of_a_login_host_has_all_fields(record):
    facts = {"version": "22.05.8", "partitions": [], "nodes": [], "folder_writable": True}
    told = checked_answers.checked("slurm_probe", {"facts": {**facts, record: [{}]}, "findings": []}, "login")
    assert "has no" in told["msg"]
