"""Errors of a simulated cluster, each with the cluster's own reason."""

import pytest
from ansible.module_utils.trainyard.job.schedulers.kubernetes import manifests
from ansible.module_utils.trainyard_controller.job.schedulers import kubernetes_cluster
from ansible.module_utils.trainyard_controller.job.schedulers.kubernetes_cluster import Cluster, ClusterError, preflight
from ansible.module_utils.trainyard_controller.job.schedulers.kubernetes_run import after_deletion, job_state, submit
from ansible.module_utils.trainyard_controller.job.schedulers.scheduler_clients import Kubernetes
from api_server import GROUPS


def found(fake, kind="Job", needs=(), made=("configmaps", "services")):
    return preflight(Cluster(fake.kubeconfig), kind, needs, made)


@pytest.mark.parametrize("kind", ["Job", "MPIJob", "MSJob"])
def test_a_suitable_cluster_has_no_findings(fake, kind):
    assert found(fake, kind, made=["configmaps", "services", "secrets"]) == []


@pytest.mark.parametrize(
    ("kind", "group", "operator"),
    [("MSJob", "mindspore.gitee.com/v1", "ms-operator"), ("MPIJob", "kubeflow.org/v2beta1", "the MPI operator")],
)
def test_an_operator_that_is_not_installed_is_a_finding(fake, kind, group, operator):
    fake.api.groups = {name: kinds for name, kinds in GROUPS.items() if name != group}
    [finding] = found(fake, kind)
    assert kind in finding.found
    assert operator in finding.expected
    assert "resource: Job" in finding.action


def test_rights_that_are_missing_are_named_all_at_once(fake):
    fake.api.denied = {("create", "jobs"), ("list", "pods")}
    findings = found(fake)
    assert [finding.found for finding in findings] == [
        "no right to create jobs in namespace research: no RBAC policy matched",
        "no right to list pods in namespace research: no RBAC policy matched",
    ]


def test_secrets_that_could_not_be_removed_are_a_finding(fake):
    fake.api.denied = {("get", "secrets"), ("delete", "secrets")}
    assert found(fake) == []
    assert [finding.found.partition(" in ")[0] for finding in found(fake, made=["secrets"])] == [
        "no right to get secrets",
        "no right to delete secrets",
    ]


def test_a_claim_that_is_not_there_is_a_finding(fake):
    need = {"kind": "PersistentVolumeClaim", "name": "imagenet", "variable": "job_kubernetes.volumes"}
    [finding] = found(fake, needs=[need])
    assert (finding.check, finding.found) == (
        "job_kubernetes.volumes",
        "no PersistentVolumeClaim imagenet in namespace research",
    )


def test_an_unreadable_object_counts_as_existing(fake):
    fake.api.denied = {("get", "secrets")}
    assert found(fake, needs=[{"kind": "Secret", "name": "registry", "variable": "x"}]) == []


def test_an_unknown_token_is_an_error(fake):
    kubeconfig = fake.api.kubeconfig(fake.folder / "other", token="wrong")  # noqa: S106
    with pytest.raises(ClusterError, match=r"Unauthorized \(HTTP 401\).*log in again"):
        Cluster(kubeconfig).version()


def test_a_silent_cluster_is_an_error(fake):
    kubeconfig = fake.api.kubeconfig(fake.folder / "other")
    fake.api.server.server_close()
    with pytest.raises(ClusterError, match=r"no answer from http://127\.0\.0\.1"):
        Cluster(kubeconfig).version()


@pytest.mark.parametrize("context", ["", "elsewhere"])
def test_a_missing_context_is_an_error(fake, context):
    path = fake.kubeconfig if context else str(fake.folder / "none")
    with pytest.raises(ClusterError, match="a kubeconfig with the context of the cluster"):
        Cluster(path, context)


def test_the_namespace_is_that_of_the_context_unless_one_is_given(fake):
    assert Cluster(fake.kubeconfig).namespace == "research"
    assert Cluster(fake.kubeconfig, namespace="mine").namespace == "mine"


def test_check_shows_the_manifest_and_applies_nothing(fake):
    fake.launch("--check").expect(0, "kind: Service", "completionMode: Indexed", "program.zip: ...")
    assert fake.api.objects == {}


def test_findings_of_job_file_and_cluster_come_together_and_nothing_is_applied(fake):
    fake.api.denied = {("create", "jobs")}
    run = fake.launch(job_devices=[0, 1])
    assert run.rc != 0
    assert list(fake.runs.glob("*/plan.json")) == []
    assert "2 findings: the job cannot run, and nothing was started." in run.text
    assert "no right to create jobs" in run.text
    assert "job_devices" in run.text
    assert fake.api.objects == {}


def test_an_existing_object_is_not_removed(fake):
    """An existing Secret stays; only objects of this launch are removed."""
    cluster = Cluster(fake.kubeconfig)
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "digits"}}
    (theirs,) = manifests.secrets("digits", {"TOKEN": "theirs"}, {})
    cluster.create(theirs)
    with pytest.raises(ClusterError, match="start the job again"):
        submit(cluster, [service, theirs])
    assert list(fake.api.objects) == [("secrets", "digits-env")]


def test_objects_that_remain_are_named_in_the_error(fake, monkeypatch):
    monkeypatch.setattr(kubernetes_cluster, "_REMOVAL_S", 0)
    monkeypatch.setattr(kubernetes_cluster, "_POLL_S", 0)
    fake.api.denied, fake.api.held = {("create", "configmaps")}, {"digits"}
    service, code = (
        {"apiVersion": "v1", "kind": kind, "metadata": {"name": "digits"}} for kind in ("Service", "ConfigMap")
    )
    with pytest.raises(ClusterError, match=r"creating ConfigMap digits: .*\(HTTP 403\); may be left: Service digits"):
        submit(Cluster(fake.kubeconfig), [service, code])


def test_an_object_that_is_not_removed_is_an_error(fake, monkeypatch):
    monkeypatch.setattr(kubernetes_cluster, "_REMOVAL_S", 0)
    monkeypatch.setattr(kubernetes_cluster, "_POLL_S", 0)
    cluster = Cluster(fake.kubeconfig)
    cluster.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "held"}})
    fake.api.held = {"held"}
    with pytest.raises(ClusterError, match=r"ConfigMap held is still in namespace research.*describe configmap held"):
        cluster.delete("v1", "ConfigMap", "held")


def test_an_unreadable_object_is_not_removed(fake):
    fake.api.denied = {("delete", "secrets")}
    Cluster(fake.kubeconfig).delete("v1", "Secret", "digits-env")


def test_a_rejected_job_leaves_nothing(fake):
    fake.api.refuse = 'Job.batch "digits" is invalid: spec.template.spec: Invalid value'
    fake.launch().fails("rejected job digits", "spec.template.spec: Invalid value")
    assert fake.api.objects == {}


def test_a_missing_image_ends_the_launch(fake):
    fake.api.course = "image"
    fake.launch().fails('ImagePullBackOff: Back-off pulling image "registry.example/none:1"', "check job_image")
    assert fake.api.objects == {}, "its pods would ask for the image for ever"


SETTINGS = {
    "resource": "Job",
    "api_version": "batch/v1",
    "plural": "jobs",
    "operator": "",
    "container": "rank",
    "name": "digits",
    "pods": 2,
    "ranks_per_pod": 1,
}
# mpirun in one pod has all ranks.
OF_OPERATOR = {**SETTINGS, "resource": "MPIJob", "api_version": "kubeflow.org/v2beta1", "plural": "mpijobs"}


def ask(fake, course, waits=False, settings=SETTINGS):
    """Ask how a job of this course is, whose folder is that of the test."""
    role = {"trainyard-role": "launcher"} if settings is OF_OPERATOR else {}
    template = {
        "metadata": {"labels": {"trainyard-job": "digits", **role}, "annotations": {}},
        "spec": {"containers": [{"name": "rank"}]},
    }
    fake.api.objects = {
        (settings["plural"], "digits"): {
            "metadata": {"name": "digits"},
            "spec": {"completions": 1 if role else 2, "template": template},
        }
    }
    fake.api.course = course
    return job_state(Cluster(fake.kubeconfig), settings, "", waits)


def test_pending_pods_have_a_reason(fake):
    found = ask(fake, "waits")
    assert found["state"] == "pending"
    assert "Unschedulable: 0/3 nodes are available: 3 Insufficient nvidia.com/gpu" in found["line"]


def test_a_missing_image_fails_a_job_that_is_waited_for(fake):
    ask(fake, "image")
    for waits, expected in ((False, "pending"), (True, "failed")):
        fake.api.step = 1
        state = job_state(Cluster(fake.kubeconfig), SETTINGS, "", waits)
        assert (state["state"], bool(state["hopeless"])) == (expected, True)


def test_a_running_job_of_an_operator_has_progress(fake):
    found = ask(fake, "runs", settings=OF_OPERATOR)
    assert "2/2 ranks running   step 3/3   epoch 1   loss 0.6   rate 102" in found["line"]


@pytest.mark.parametrize(
    ("secrets", "end"), [([], "running   rank 0 printed: reading shard 4"), (["TOKEN"], "running")]
)
def test_without_a_step_the_line_shows_what_rank_0_printed_last(fake, secrets, end):
    """Nothing has the values of secrets here, so a job that has some shows no line of its log."""
    fake.api.log = "2026-11-21T20:00:10Z reading shard 4\n"
    ask(fake, "runs", settings=OF_OPERATOR)
    settings = {**OF_OPERATOR, "kubeconfig": fake.kubeconfig, "context": "", "namespace": ""}
    client = Kubernetes({"settings": settings, "progress_pattern": "", "secret_env": secrets})
    assert client.state(waits=False)["line"].endswith(end)


MPIRUN = """\
mpirun detected that one or more processes exited with non-zero status, thus causing the job to be terminated.
  Process name: [[4711,1],3]
  Exit code:    7
"""


def test_of_several_ranks_of_a_pod_the_first_to_fail_is_named(fake):
    fake.api.log = "".join(f"2026-11-21T20:00:10Z {line}\n" for line in MPIRUN.splitlines())
    ask(fake, "fails", settings=OF_OPERATOR)
    # The resource is read before its pods, and so tells of the failure one question later.
    for _ in range(2):
        found = job_state(Cluster(fake.kubeconfig), {**OF_OPERATOR, "ranks_per_pod": 2}, "", False)
    failure = found["failure"]
    assert (failure["process"], failure["rank"], failure["exit_code"], failure["signal"]) == ("mpirun", 3, 7, None)


def test_a_job_that_is_gone_is_lost_and_was_not_stopped(fake):
    cluster = Cluster(fake.kubeconfig)
    found = job_state(cluster, SETTINGS, "", False)
    assert found["state"] == "lost"
    assert after_deletion(cluster, SETTINGS, found)["state"] == "lost"
    assert after_deletion(cluster, SETTINGS, {**found, "state": "running"})["state"] == "stopped"


def test_a_controller_without_the_client_is_told_how_to_get_it(fake, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "kubernetes.client", None)
    with pytest.raises(ClusterError, match="make kubernetes"):
        Cluster(fake.kubeconfig)
