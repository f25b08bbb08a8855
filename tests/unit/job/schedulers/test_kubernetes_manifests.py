"""Jobs as manifests: valid by the schemas of Kubernetes and of the custom resources, with the right content."""

import base64
import json
import os
import sys
from pathlib import Path

import jsonschema
import kubernetes_validate
import pytest
import yaml
from ansible.module_utils.trainyard.job import schedulers
from ansible.module_utils.trainyard.job.file import mindspore_tls
from ansible.module_utils.trainyard.job.schedulers.kubernetes import names, scheduler, settings
from ansible.module_utils.trainyard.job.schedulers.kubernetes.manifests import secrets
from ansible.module_utils.trainyard.job.schedulers.kubernetes.resources import RESOURCES
from ansible.module_utils.trainyard.job.schedulers.records import Source, Where
from ansible.module_utils.trainyard.slurm.allocation import PODS, of_kubernetes
from ansible.module_utils.trainyard_controller.job.schedulers.submission import rendered
from hypothesis import given as generated
from hypothesis import strategies

sys.path.insert(0, str(Path(__file__).parents[3] / "fixtures" / "kubernetes"))
from schemas import SCHEMAS

# The oldest and the newest supported Kubernetes.
VERSIONS = ("1.28.0", "1.37.0")
ARCHIVE = b"\x1f\x8b packed"
GIVEN = {
    "job_name": "digits",
    "job_scheduler": "kubernetes",
    "job_command": ["python", "train.py", "--data=$(HOME)/x"],
    "job_source": "training/pytorch",
    "job_devices": "none",
    "job_nodes": 3,
    "job_image": "registry.example/pytorch:2.13",
    "job_timeout": 600,
}


def plan(expect_findings=False, facts=None, **changes):
    given = {**GIVEN, **changes}
    job, wrong = schedulers.parse(given)
    assert not wrong
    source = Source(["train.py"], ARCHIVE) if given["job_source"] else Source([])
    where = Where("digits-20261121-200000", "2026-11-21T20:00:00+0000", "localhost", "/var/lib/trainyard", "train")
    made, findings = scheduler.plan(job, facts or {}, source, where)
    if expect_findings:
        return findings
    assert findings == []
    return made


def manifests(facts=None, **changes):
    return list(yaml.safe_load_all(plan(facts=facts, **changes).submitted["manifest.yml"]))


def the(kind, **changes):
    [found] = [item for item in manifests(**changes) if item["kind"] == kind]
    return found


def templates(manifest):
    spec = manifest["spec"]
    replicas = next((value for key, value in spec.items() if key.endswith("ReplicaSpecs")), {"": spec})
    return {role: replica["template"] for role, replica in replicas.items()}


def environment(template):
    return {item["name"]: item.get("value") for item in template["spec"]["containers"][0]["env"]}


EVERYTHING = {
    "cpu": "8",
    "memory": "64Gi",
    "device_resource": "nvidia.com/gpu",
    "rdma_resource": "rdma/hca_shared_devices_a",
    "shared_memory": "16Gi",
    "host_network": True,
    "node_selector": {"accelerator": "h100", "spot": False},
    "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
    "volumes": [
        {"path": "/data", "claim": "imagenet", "read_only": True},
        {"path": "/scratch", "host_path": "/mnt/nvme"},
    ],
    "priority_class": "high",
    "image_pull_policy": "IfNotPresent",
    "image_pull_secrets": ["registry"],
    "service_account": "trainer",
    "keep_s": 3600,
    "clean_pods": "Running",
}
KINDS = [(kind, start) for kind, resource in RESOURCES.items() for start in resource.launchers]


@pytest.mark.parametrize("table", [{}, EVERYTHING])
@pytest.mark.parametrize(("kind", "start"), KINDS)
@pytest.mark.parametrize("version", VERSIONS)
def test_every_manifest_is_valid(kind, start, table, version):
    several = kind != "MSJob"
    made = manifests(
        facts={"version": version},
        job_launcher=start,
        job_kubernetes={"resource": kind, **table},
        job_ranks_per_node=8 if table and several else 1,
        job_devices="auto" if table else "none",
        job_secret_env=["TOKEN"],
        job_namespace="research",
    )
    assert [item["kind"] for item in made] == ["ConfigMap", *(["Service"] if kind == "Job" else []), kind]
    for manifest in made:
        if manifest["kind"] in ("MSJob", "MPIJob"):
            jsonschema.Draft202012Validator(SCHEMAS[manifest["kind"]]).validate(manifest)
        else:
            kubernetes_validate.validate(manifest, version, strict=True)
    for template in templates(made[-1]).values():
        metadata = {"name": "pod", **template["metadata"]}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}
        kubernetes_validate.validate(pod, version, strict=True)


def test_pods_of_a_plain_job_run_the_program_and_meet_at_the_first_one_by_the_service():
    _, service, job = manifests(job_spares=2, job_max_restarts=1)
    spec, name = job["spec"], job["metadata"]["name"]
    pod = spec["template"]["spec"]
    [container] = pod["containers"]
    assert container["command"] == ["python3", "-IS", "/trainyard/program/program.zip", "node"]
    # job_env and the rest are in the plan that the pods make.
    assert environment(spec["template"]) == {PODS: f"5 {name} 3 600", "TRAINYARD_ADDRESS": None}
    hosts = of_kubernetes({PODS: f"5 {name} 3 600", "JOB_COMPLETION_INDEX": "4"})
    assert (hosts.hosts[0], hosts.host, hosts.run) == (f"{name}-0", f"{name}-4", 0)
    assert pod["subdomain"] == service["metadata"]["name"] == name
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["publishNotReadyAddresses"] is True
    assert service["spec"]["selector"].items() <= spec["template"]["metadata"]["labels"].items()
    assert (spec["completions"], spec["parallelism"], spec["completionMode"]) == (5, 5, "Indexed")
    # The monitors keep job_timeout, and the time to save comes after it.
    assert spec["activeDeadlineSeconds"] > 600 + pod["terminationGracePeriodSeconds"] > 630


def test_one_pod_ends_without_the_others_where_the_cluster_can():
    assert the("Job")["spec"]["backoffLimitPerIndex"] == 0
    old = manifests(facts={"version": "1.28"})[-1]["spec"]
    assert (old["backoffLimit"], "backoffLimitPerIndex" in old) == (0, False)
    spares = {"job_spares": 1, "job_max_restarts": 1}
    [finding] = plan(facts={"version": "1.28"}, expect_findings=True, **spares)
    assert (finding.found, finding.check) == ("Kubernetes 1.28", "cluster")


@pytest.mark.parametrize("number", ["3", "x", None])
def test_a_pod_without_its_place_is_none(number):
    with pytest.raises(ValueError, match="no pod of a job"):
        of_kubernetes({PODS: "3 digits", **({"JOB_COMPLETION_INDEX": number} if number else {})})


def test_an_msjob_has_a_scheduler_and_workers():
    job = the("MSJob", job_launcher="mindspore", job_packages=["mindspore"])
    replicas = job["spec"]["msReplicaSpecs"]
    assert {role: replica["replicas"] for role, replica in replicas.items()} == {"Scheduler": 1, "Worker": 3}
    for template in templates(job).values():
        [container] = template["spec"]["containers"]
        assert container["name"] == "mindspore"
        assert container["ports"] == [{"name": "msjob-port", "containerPort": 2222}]
    assert job["spec"]["successPolicy"] == "AllWorkers"
    assert job["spec"]["runPolicy"]["cleanPodPolicy"] == "None"


def replicas_of(job):
    return {role: replica["replicas"] for role, replica in job["spec"]["msReplicaSpecs"].items()}


def test_an_msjob_of_one_worker_needs_no_scheduler():
    """As in ms-operator's samples, which then sets no variables; TLS and recovery are between processes."""
    start = {"job_launcher": "mindspore", "job_packages": ["mindspore"], "job_nodes": 1}
    assert replicas_of(the("MSJob", **start)) == {"Worker": 1}
    recovery = {"job_recovery": True, "job_max_restarts": 1}
    for more in ({"tls_secret": "ms-tls"}, {"recovery_claim": "claim"}, {"servers": 1}):
        given = {**start, **(recovery if "recovery_claim" in more else {}), "job_kubernetes": more}
        assert {"Scheduler": 1, "Worker": 1}.items() <= replicas_of(the("MSJob", **given)).items()


def test_an_msjob_may_have_parameter_servers():
    table = {"servers": 2, "device_resource": "nvidia.com/gpu"}
    start = {"job_launcher": "mindspore", "job_packages": ["mindspore"], "job_devices": "auto", "job_ranks_per_node": 1}
    job = the("MSJob", **start, job_kubernetes=table)
    jsonschema.Draft202012Validator(SCHEMAS["MSJob"]).validate(job)
    assert replicas_of(job) == {"Scheduler": 1, "PS": 2, "Worker": 3}
    found = {role: "resources" in template["spec"]["containers"][0] for role, template in templates(job).items()}
    assert found == {"Scheduler": False, "PS": False, "Worker": True}


def test_an_msjob_with_tls_and_recovery_mounts_secret_and_claim():
    table = {"tls_secret": "ms-tls", "recovery_claim": "recovery"}
    job = the("MSJob", job_launcher="mindspore", job_recovery=True, job_max_restarts=2, job_kubernetes=table)
    for template in templates(job).values():
        volumes = {volume["name"]: volume for volume in template["spec"]["volumes"]}
        assert volumes["tls"]["secret"]["secretName"] == "ms-tls"
        assert volumes["recovery"]["persistentVolumeClaim"]["claimName"] == "recovery"
        env = environment(template)
        assert env["MS_TLS_CONFIG"] == "/trainyard/tls/config.json"
        assert (env["MS_ENABLE_RECOVERY"], env["MS_RECOVERY_PATH"]) == ("1", "/trainyard/recovery")
    assert job["spec"]["msReplicaSpecs"]["Worker"]["restartPolicy"] == "OnFailure"
    assert job["spec"]["runPolicy"]["backoffLimit"] == 2


TLS = {"job_tls": True, "job_packages": ["mindspore"]}


def test_job_tls_gives_all_pods_of_an_msjob_the_jobs_files_and_passwords():
    made = plan(job_launcher="mindspore", **TLS)
    name = made.settings["name"]
    job = list(yaml.safe_load_all(made.submitted["manifest.yml"]))[-1]
    for template in templates(job).values():
        [volume] = [volume for volume in template["spec"]["volumes"] if volume["name"] == "tls"]
        assert volume["secret"] == {"secretName": f"{name}-tls", "defaultMode": 0o444}
        [container] = template["spec"]["containers"]
        [mount] = [mount for mount in container["volumeMounts"] if mount["name"] == "tls"]
        assert environment(template)["MS_TLS_CONFIG"] == f"{mount['mountPath']}/config.json"
        # The paths in config.json must match the mount.
        config = json.loads(
            mindspore_tls.configuration(made.settings["tls_home"], 30, True, mindspore_tls.DEFAULT_CIPHERS)
        )
        assert {Path(config[key]).parent for key in config if key.endswith("_path")} == {Path(mount["mountPath"])}
        passwords = {item["name"]: item["valueFrom"] for item in container["env"] if "PASSWORD" in item["name"]}
        assert passwords == {
            variable: {"secretKeyRef": {"name": f"{name}-env", "key": variable}}
            for variable in mindspore_tls.PASSWORD_VARIABLES.values()
        }


def test_all_settings_are_in_the_pods():
    changes = {"job_devices": "auto", "job_ranks_per_node": 8}
    spec = the("Job", job_kubernetes=EVERYTHING, **changes)["spec"]
    pod = spec["template"]["spec"]
    [container] = pod["containers"]
    resources = {"cpu": "8", "memory": "64Gi", "nvidia.com/gpu": "8", "rdma/hca_shared_devices_a": "1"}
    assert container["resources"] == {"requests": resources, "limits": resources}
    assert container["securityContext"] == {"capabilities": {"add": ["IPC_LOCK"]}}
    assert container["imagePullPolicy"] == "IfNotPresent"
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    mounts = {mount["mountPath"]: mount for mount in container["volumeMounts"]}
    assert volumes[mounts["/dev/shm"]["name"]]["emptyDir"] == {"medium": "Memory", "sizeLimit": "16Gi"}  # noqa: S108
    assert volumes[mounts["/data"]["name"]]["persistentVolumeClaim"] == {"claimName": "imagenet"}
    assert mounts["/data"]["readOnly"] is True
    assert volumes[mounts["/scratch"]["name"]]["hostPath"] == {"path": "/mnt/nvme"}
    assert (pod["hostNetwork"], pod["dnsPolicy"]) == (True, "ClusterFirstWithHostNet")
    assert pod["nodeSelector"] == {"accelerator": "h100", "spot": "false"}
    assert pod["tolerations"] == EVERYTHING["tolerations"]
    assert (pod["serviceAccountName"], pod["priorityClassName"]) == ("trainer", "high")
    assert pod["imagePullSecrets"] == [{"name": "registry"}]
    assert spec["ttlSecondsAfterFinished"] == 3600
    ascend = the("Job", job_kubernetes={"device_resource": "huawei.com/Ascend910"}, **changes)
    [container] = ascend["spec"]["template"]["spec"]["containers"]
    assert container["resources"]["limits"] == {"huawei.com/Ascend910": "8"}


def test_an_mpijobs_launcher_starts_all_ranks_without_devices():
    changes = {"job_env": {"LEVEL": "1"}, "job_secret_env": ["TOKEN"], "job_devices": "auto", "job_ranks_per_node": 4}
    job = the("MPIJob", job_launcher="mpirun", job_kubernetes={"device_resource": "nvidia.com/gpu"}, **changes)
    assert job["spec"]["slotsPerWorker"] == 4
    launcher, worker = (templates(job)[role]["spec"]["containers"][0] for role in ("Launcher", "Worker"))
    words = launcher["command"]
    assert words[words.index("-n") + 1] == "12"
    exported = {words[place + 1] for place, word in enumerate(words) if word == "-x"}
    assert {"LEVEL", "TOKEN", "MASTER_ADDR", "MASTER_PORT", "PATH"} <= exported
    assert "resources" not in launcher
    assert worker["resources"]["limits"] == {"nvidia.com/gpu": "4"}
    assert worker["command"] == ["/usr/sbin/sshd", "-De"]


@pytest.mark.parametrize(("kind", "start"), KINDS)
def test_manifests_only_reference_secrets(kind, start):
    made = plan(job_launcher=start, job_kubernetes={"resource": kind}, job_secret_env=["TOKEN"])
    found = made.settings["name"] + "-env"
    if kind == "Job":
        pod = templates(list(yaml.safe_load_all(made.submitted["manifest.yml"]))[-1])[""]["spec"]
        [volume] = [volume["secret"] for volume in pod["volumes"] if volume["name"] == "secrets"]
        assert volume["secretName"] == found
        return
    references = [
        item["valueFrom"]["secretKeyRef"]
        for template in templates(list(yaml.safe_load_all(made.submitted["manifest.yml"]))[-1]).values()
        for item in template["spec"]["containers"][0]["env"]
        if item["name"] == "TOKEN"
    ]
    assert references
    assert all(reference == {"name": found, "key": "TOKEN"} for reference in references)


def test_the_pods_of_a_plain_job_read_secrets_and_their_token_as_files():
    [made] = secrets("digits", {"TOKEN": "x"}, {"tls/ca.pem": "eA=="}, "t")
    assert (made["metadata"]["name"], made["stringData"]) == (
        "digits-env",
        {"token": "t", "secrets.json": '{"secret_env": {"TOKEN": "x"}, "secret_files": {"tls/ca.pem": "eA=="}}'},
    )


def test_code_comes_from_configmap_volume_or_image():
    pod = templates(the("MPIJob", job_launcher="mpirun"))["Worker"]["spec"]
    assert pod["initContainers"][0]["command"][:2] == ["tar", "-xzf"]
    assert pod["containers"][0]["workingDir"] == "/trainyard/source"
    assert the("ConfigMap")["binaryData"] == {"source.tar.gz": base64.b64encode(ARCHIVE).decode()}
    volume = {"code": "volume", "code_claim": "scripts", "code_path": "/scripts"}
    made = manifests(job_source="", job_kubernetes=volume)
    assert [item["kind"] for item in made] == ["Service", "Job"]
    pod = made[-1]["spec"]["template"]["spec"]
    assert {"name": "code", "persistentVolumeClaim": {"claimName": "scripts"}} in pod["volumes"]
    # The program of a plain Job unpacks the source itself, or runs the ranks where the code is.
    for made, code in (({}, ""), ({"job_source": "", "job_kubernetes": volume}, "/scripts"), ({"job_source": ""}, "")):
        job, _ = schedulers.parse({**GIVEN, **made})
        own = scheduler.in_pods(job)
        assert (own["code_dir"], own["archive"]) == (code, "/dev/null" if made else "/trainyard/packed/source.tar.gz")
        assert "initContainers" not in the("Job", **made)["spec"]["template"]["spec"]


def test_values_of_ansibles_own_types_are_plain_in_a_manifest():
    class Tagged(str):
        """As Ansible marks a text that a user gives."""

    class Number(int):
        """As Ansible marks a number."""

    volumes = [{"path": Tagged("/data"), "host_path": Tagged("/srv")}]
    options = {"volumes": volumes, "tolerations": [{Tagged("key"): Tagged("gpu")}], "keep_s": Number(60)}
    spec = the("Job", job_kubernetes=options)["spec"]
    pod = spec["template"]["spec"]
    assert pod["volumes"][-1]["hostPath"] == {"path": "/srv"} and pod["tolerations"] == [{"key": "gpu"}]
    assert spec["ttlSecondsAfterFinished"] == 60


@pytest.mark.parametrize(
    ("start", "secrets", "made"),
    [("torchrun", False, ["configmaps", "services", "secrets"]), ("mpirun", True, ["configmaps", "secrets"])],
)
def test_rights_are_checked_for_created_objects(start, secrets, made):
    job, _ = schedulers.parse({**GIVEN, "job_launcher": start})
    chosen, _ = settings.parse(job)
    assert scheduler.other_kinds(chosen, secrets=secrets) == made


RECOVERY = {"job_launcher": "mindspore", "job_recovery": True, "job_max_restarts": 1}
WRONG = [
    ({"job_image": ""}, "job_image"),
    ({"job_image": "pytorch:latest"}, "a tag that does not move"),
    ({"job_nodes": 0}, "job_nodes"),
    ({"job_kubernetes": {"resorce": "Job"}}, "did you mean resource?"),
    ({"job_kubernetes": {"resource": "TFJob"}}, "one of Job, MPIJob, MSJob"),
    ({"job_kubernetes": {"resource": "MSJob"}, "job_launcher": "torchrun"}, "set job_launcher: mindspore"),
    ({"job_kubernetes": {"servers": 2}}, "an MSJob, which alone has parameter servers"),
    ({"job_kubernetes": {"servers": -1}, "job_launcher": "mindspore"}, "the number of parameter servers"),
    ({"job_kubernetes": {"memory": "64 GB"}}, "a quantity of Kubernetes"),
    ({"job_kubernetes": {"host_network": "yes"}}, "true or false"),
    ({"job_kubernetes": {"volumes": [{"path": "data", "claim": "x"}]}}, "where it is mounted"),
    ({"job_kubernetes": {"node_selector": ["gpu"]}}, "labels of nodes"),
    ({"job_kubernetes": {"code": "volume"}}, "no job_source"),
    ({"job_kubernetes": {"tls_secret": "x"}}, "mindspore or msrun"),
    ({"job_kubernetes": {"recovery_claim": "x"}}, "whose scheduler recovers"),
    ({**TLS, "job_launcher": "mindspore", "job_kubernetes": {"tls_secret": "x"}}, "leave out job_tls, or"),
    ({"job_devices": "auto"}, "job_kubernetes.device_resource"),
    ({"job_devices": [0, 1]}, "device plugin chooses"),
    ({"job_launcher": "mindspore", "job_ranks_per_node": 2}, "each pod is one rank"),
    (RECOVERY, "recovery_claim"),
    ({**RECOVERY, "job_recovery_path": "/x", "job_kubernetes": {"recovery_claim": "x"}}, "use the claim"),
    ({"job_network": "eth1", "job_launcher": "mpirun"}, "NCCL_SOCKET_IFNAME"),
    ({"job_data": ["/data"], "job_launcher": "mpirun"}, "job_kubernetes.volumes"),
    ({"job_namespace": "My_Space"}, "lower-case letters"),
]


@pytest.mark.parametrize(("changes", "expected"), WRONG)
def test_unsupported_options_are_findings(changes, expected):
    findings = plan(expect_findings=True, **changes)
    assert any(expected in f"{finding.check} {finding.expected} {finding.action}" for finding in findings), findings


def test_what_is_too_large_for_a_configmap_is_a_finding():
    """The API counts the values of a ConfigMap before base64."""
    job, _ = schedulers.parse(GIVEN)
    where = Where("digits-1", "", "localhost", "", "")
    for size, checks in ((1 << 20, []), (1 + (1 << 20), ["job_source"])):
        made, findings = scheduler.plan(job, {}, Source(["train.py"], b"A" * size), where)
        assert [finding.check for finding in findings] == checks
    for size, checks in ((1000, []), (1 << 20, ["job file"])):
        # A text that cannot be packed.
        given = {**GIVEN, "job_env": {"LONG": os.urandom(size).hex()}}
        _, findings = rendered(made, given, where, "", Source(["train.py"]))
        assert [finding.check for finding in findings] == checks


@pytest.mark.parametrize(
    ("name", "appended", "legal", "reason"),
    [
        ("digits-20261121-200000", 14, "digits-20261121-200000", ""),
        ("My_Job", 0, "my-job-", "only lower-case letters"),
        ("7b", 0, "j-7b-", "a letter must come first"),
        ("a" * 60, 14, "a" * 42 + "-", "at most 49 characters fit"),
    ],
)
def test_illegal_names_are_changed_with_a_message(name, appended, legal, reason):
    made, message = names.legal(name, appended)
    assert made.startswith(legal)
    assert reason in message
    assert bool(message) == (made != name)


@generated(strategies.text(max_size=80), strategies.integers(0, 20))
def test_any_name_becomes_legal(name, appended):
    made, _ = names.legal(name, appended)
    assert names.is_label(made)
    assert made[0].isalpha()
    assert len(made) + appended <= 63
    assert names.legal("job_a")[0] != names.legal("job.a")[0]


@pytest.mark.parametrize(("name", "kind"), [("torchrun", "Job"), ("mindspore", "MSJob")])
def test_the_example_job_files_have_a_manifest(name, kind):
    given = yaml.safe_load((Path(__file__).parents[4] / "jobs" / f"kubernetes-{name}.yml").read_text())
    assert the(kind, **given)["spec"]


def test_the_plan_reports_a_shortened_name():
    assert plan().settings["renamed"] == ""
    long = "b" * 40
    job, _ = schedulers.parse({**GIVEN, "job_name": long})
    where = Where(f"{long}-20261121-200000-12", "", "localhost", "", "")
    made, _ = scheduler.plan(job, {}, Source(["train.py"], ARCHIVE), where)
    assert made.settings["renamed"].startswith(f"{long}-20261121-200000-12 is called {made.settings['name']}")
