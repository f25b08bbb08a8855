"""What remove.yml does on a node, and what it leaves."""

from pathlib import Path

import pytest
import yaml
from ansible.module_utils.trainyard.removal import places
from ansible.module_utils.trainyard.removal.places import DATA, EMPTY, FOLDER, LINES, OWN, WHOLE, Place, Settings
from ansible.module_utils.trainyard.removal.removal_plan import Request, build, texts
from ansible.module_utils.trainyard.removal.summary import summary
from removal_states import ABSENT, depends, file, folder, node, record_of

PROJECT = Path(__file__).resolve().parents[3]
REQUEST = Request("train", "trainyard")
LIMITS = "/etc/security/limits.d/60-trainyard.conf"
NEW, OLD, ADMINS = file("1" * 64), file("2" * 64), file("3" * 64)


def undo(path, use, now, before=ABSENT, written=None, record=True, request=REQUEST, **state):
    kept = record_of(node(places={path: before}), node(written={path: written} if written else {}))
    found = {path: {path: now}}
    present = node(found=found, matches={path: [path]}, **state)
    plan = build(kept if record else None, present, [Place(path, use)], request)
    return [(step.how, *step.names) for step in plan.steps], plan.stays


@pytest.mark.parametrize(
    ("now", "before", "written", "steps"),
    [
        (NEW, ABSENT, NEW, [("delete",)]),
        (NEW, ABSENT, None, [("delete",)]),
        (ADMINS, ABSENT, NEW, [("save",)]),
        (folder("x"), ABSENT, NEW, [("delete",)]),
        (ABSENT, ABSENT, NEW, []),
        (ABSENT, OLD, None, [("restore",)]),
        (NEW, OLD, NEW, [("restore",)]),
        (OLD, OLD, NEW, []),
        (ADMINS, OLD, NEW, []),
        (NEW, OLD, None, []),
        (folder("x"), folder("x"), None, []),
    ],
)
def test_a_file_goes_or_comes_back_unless_somebody_changed_it(now, before, written, steps):
    found, stays = undo(LIMITS, OWN, now, before, written)
    assert found == steps
    changed = (now, before) in ((ADMINS, ABSENT), (ADMINS, OLD), (NEW, OLD)) and steps in ([], [("save",)])
    assert [LIMITS in each for each in stays] == [True] * changed


def test_without_a_record_only_what_has_our_name_goes():
    assert undo(LIMITS, OWN, NEW, record=False)[0] == [("delete",)]
    steps, stays = undo("/etc/munge", OWN, folder("munge.key"), record=False, doubtful=("/etc/munge",))
    assert steps == [] and stays == ["/etc/munge: no record says whose it is"]
    assert undo("/data/software", FOLDER, folder("venvs"), record=False)[0] == []
    stays = undo(LIMITS, OWN, NEW, record=False, users={"root": 0, "train": 2000})[1]
    assert [each.split(":")[0] for each in stays] == [
        "packages that trainyard installed before it kept a record; see /var/log/apt/history.log",
        "the user train",
    ]


def test_an_ordinary_user_has_made_neither_packages_nor_accounts():
    """An administrator may have installed packages and made users while site.yml ran as an ordinary user."""
    mine = Request("jane", "trainyard", system=False)
    users = {"root": 0, "jane": 1000}
    assert undo("/home/jane/software", FOLDER, folder("venvs"), record=False, request=mine, users=users)[1] == []
    after = node(packages={"base": "1", "vim": "2"}, users={**users, "bob": 1001}, units={"chrony.service": ["a", "b"]})
    log = "Start-Date: 2026-11-26  10:00:01\nCommandline: Dpkg::Options::=--force-confdef\nInstall: vim:amd64 (2)\n"
    kept = record_of(node(users=users), after, log)
    now = node(installed={"vim": depends()}, users=after["users"], packages=after["packages"])
    assert build(kept, now, [], REQUEST).steps != []
    plan = build(kept, now, [], mine)
    assert (plan.steps, plan.stays, plan.findings) == ([], [], [])


def test_of_a_folder_of_software_only_what_trainyard_put_there_goes():
    root, ours = "/opt/trainyard", folder("venvs", "venvs/pytorch", "openmpi-4")
    assert undo(root, FOLDER, ours, written=ours)[0] == [("delete",)]
    now = folder(*ours["content"], "venvs/mine", "notes")
    steps, stays = undo(root, FOLDER, now, written=ours)
    assert steps == [("prune", "openmpi-4", "venvs/pytorch"), ("empty",)]
    assert [each.split(":")[0] for each in stays] == [f"{root}/notes", f"{root}/venvs/mine"]
    assert undo(root, FOLDER, now, written=ours, request=REQUEST._replace(data=True))[0] == [("delete",)]
    # The folder was the site's before.
    assert undo(root, FOLDER, folder("old", "old/x", "venvs"), folder("old", "old/x"), ours)[0] == [("prune", "venvs")]
    # The demo has its state inside.
    inside = REQUEST._replace(apart={root: ["state"]})
    steps = undo(root, FOLDER, folder("venvs", "venvs/pytorch", "state", "state/jobs"), written=ours, request=inside)[0]
    assert ("prune", "venvs") in steps and not any("state" in step for step in steps)


def test_results_stay_unless_the_user_wants_them_removed():
    path = "/var/lib/trainyard/checkpoints"
    assert undo(path, DATA, folder())[0] == [("delete",)]
    steps, stays = undo(path, DATA, folder("a", "a/step1", "b"))
    assert steps == [] and stays == [f"{path}: 2 entries; remove_data takes them"]
    assert undo(path, DATA, folder("a"), request=REQUEST._replace(data=True))[0] == [("delete",)]
    assert undo(path, DATA, folder("a"), folder("a"), request=REQUEST._replace(data=True))[0] == []


def test_a_folder_with_the_work_of_others_stays_whole():
    path, left = "/var/lib/containers/storage", folder("libpod", "overlay", "overlay/l")
    assert undo(path, WHOLE, left)[0] == [("delete",)]
    for name in ("overlay/" + "a" * 64, "overlay-images/" + "b" * 64, "volumes/mine", "net.d/site.conflist"):
        assert undo(path, WHOLE, folder(*left["content"], name)) == ([], [f"{path}: somebody uses it"])
    assert undo(path, WHOLE, left, left) == ([], []) and undo(path, WHOLE, left, record=False) == ([], [])


def test_folders_that_may_be_empty_go_last():
    record = record_of()
    found = {"/etc/trainyard": {"/etc/trainyard": folder("ssh")}, LIMITS: {LIMITS: NEW}}
    plan = build(record, node(found=found), [Place("/etc/trainyard", EMPTY), Place(LIMITS, OWN)], REQUEST)
    assert [step.how for step in plan.steps] == ["delete", "empty"]


def test_a_user_that_trainyard_made_goes_with_its_home():
    record = record_of(after=node(users={"train": 2000, "root": 0}, groups={"train": 2000, "root": 0}))
    state = node(users={"train": 2000}, groups={"train": 2000}, home={"path": "/home/train", "own": []}, lingers=True)
    assert [step.how for step in build(record, state, [], REQUEST).steps] == ["unlinger", "user", "group", "home"]
    state["home"]["own"] = ["thesis"]
    plan = build(record, state, [], REQUEST)
    assert "home" not in [step.how for step in plan.steps]
    assert plan.stays == ["/home/train of train, with thesis; remove_data takes it"]
    # A later run takes the home.
    gone = {**record, "users": {}, "groups": {}, "homes": ["/home/train"]}
    assert build(gone, node(homes=["/home/train"]), [], REQUEST).waits
    taken = build(gone, node(homes=["/home/train"]), [], REQUEST._replace(data=True))
    assert [(step.how, step.path) for step in taken.steps] == [("home", "/home/train")]
    # Somebody has made another user of this name.
    assert build(record, {**state, "users": {"train": 1001}, "groups": {}}, [], REQUEST).steps[1:] == []


def test_a_user_that_was_there_before_stays_and_leaves_the_group_of_the_devices():
    record = record_of(node(members={"HwHiAiUser": ["other"]}))
    plan = build(record, node(users={"train": 2000}, user_groups=["HwHiAiUser"]), [], REQUEST)
    assert [(step.how, step.path, *step.names) for step in plan.steps] == [("leave", "train", "HwHiAiUser")]


def test_a_node_in_use_is_refused():
    record = record_of(after=node(users={"root": 0, "train": 2000}))
    for uses, found in ((["job digits-1"], ("job", "job digits-1")), ([], ("processes", "train runs python (7)"))):
        plan = build(record, node(uses=uses, processes=["python (7)"], users={"train": 2000}), [], REQUEST)
        assert [(each.check, each.found) for each in plan.findings] == [found]
        assert ("playbooks/stop.yml" in plan.findings[0].action) is bool(uses)
    # Processes of a user whom others made are no hindrance: the user stays.
    assert build(record_of(), node(processes=["python (7)"]), [], REQUEST).findings == []


def test_packages_services_and_marks_come_back():
    after = node(packages={"base": "2", "rsync": "1", "munge": "1", "g++": "1"}, held=["g++"])
    record = record_of(node(packages={"base": "1", "g++": "1"}, leftover=["munge"], automatic=["g++"],
                            units={"chrony.service": ["disabled", "inactive"]}), after)  # fmt: skip
    state = node(
        installed=dict.fromkeys(after["packages"], record_packages()),
        held=["g++"],
        units={"chrony.service": ["enabled", "active"]},
    )
    plan = build(record, state, [], REQUEST)
    assert texts(plan.steps) == [
        "remove 1 package: rsync",
        "remove 1 package, whose settings stay: munge",
        "let apt change g++ again",
        "mark g++ as installed automatically",
        "have chrony.service as it was: disabled, inactive",
    ]
    assert plan.stays == ["newer versions of base (1 before)"]


def test_packages_of_the_roles_of_nvidia_go_by_their_own_records():
    state = node(added=["libnccl2", "gone"], installed={"libnccl2": record_packages()})
    for record in (None, record_of()):
        assert texts(build(record, state, [], REQUEST).steps) == ["remove 1 package: libnccl2"]


def record_packages():
    from ansible.module_utils.trainyard.removal.history import Package

    return Package()


def test_a_dependency_that_somebody_wants_now_stays():
    record = record_of(after=node(packages={"base": "1", "libfuse": "1"}, automatic=["libfuse"]))
    plan = build(record, node(installed={"libfuse": record_packages()}, automatic=[]), [], REQUEST)
    assert plan.steps == [] and plan.stays == ["package libfuse: somebody marked it as installed manually"]


HOSTS = "127.0.0.1 localhost\n127.0.1.1 n1\n10.0.0.9 nas\n"
BLOCK = "# BEGIN trainyard trainyard\n10.0.0.1 n1\n# END trainyard trainyard\n"
WRITTEN = f"127.0.0.1 localhost\n10.0.0.9 nas\n{BLOCK}"


@pytest.mark.parametrize(
    ("now", "written", "after"),
    [
        (WRITTEN, WRITTEN, HOSTS),
        (HOSTS, WRITTEN, HOSTS),
        # An administrator added a line and removed one.
        (f"127.0.0.1 localhost\n{BLOCK}10.0.0.8 mail\n", WRITTEN, "127.0.0.1 localhost\n127.0.1.1 n1\n10.0.0.8 mail\n"),
        # An interrupted run: only the marks tell what is ours.
        (f"{HOSTS}{BLOCK}10.0.0.8 mail\n", None, f"{HOSTS}10.0.0.8 mail\n"),
    ],
)
def test_the_lines_of_trainyard_leave_a_file_of_the_system(now, written, after):
    assert places.without_ours("/etc/hosts", now, HOSTS, written, Settings()) == after


def test_one_line_of_known_hosts_is_ours():
    ours, other = "@cert-authority * ssh-ed25519 AAAA trainyard:trainyard\n", "nas ssh-ed25519 BBBB\n"
    path = "/etc/ssh/ssh_known_hosts"
    assert places.without_ours(path, ours, "", None, Settings()) == ""
    assert places.without_ours(path, ours + other, "", ours, Settings()) == other
    other_cluster = ours.replace(":trainyard\n", ":lab\n")
    assert places.without_ours(path, ours + other_cluster, "", None, Settings()) == other_cluster


def test_a_file_that_only_had_our_lines_goes():
    path = "/etc/ssh/ssh_known_hosts"
    assert undo(path, LINES, NEW, cleaned={path: ""})[0] == [("delete",)]
    assert undo(path, LINES, NEW, OLD, cleaned={path: ""})[0] == [("lines",)]
    assert undo(path, LINES, NEW, cleaned={path: None})[0] == []


def test_every_place_has_one_use_and_no_place_is_a_folder_of_the_system():
    found = places.places(Settings(folders=("/data/openmpi",)))
    assert len({place.path for place in found}) == len(found) > 40
    assert {place.use for place in found} == {
        places.OWN,
        places.LINES,
        places.FOLDER,
        places.EMPTY,
        places.WHOLE,
        places.DATA,
    }
    shared = {"/etc", "/usr", "/var", "/opt", "/root", "/home", "/etc/ssh", "/etc/apt", "/var/lib", "/usr/local"}
    assert not {place.path for place in found if place.use != LINES} & shared
    shared = places.places(Settings(state="/home/bob/jobs", records="/home/bob/jobs/records/n1", manage_system=False))
    assert [place.path for place in shared if place.use == EMPTY] == ["/home/bob/jobs/records", "/home/bob/jobs"]
    software = places.places(Settings(manage_system=False))
    assert {place.path for place in software} < {place.path for place in found}
    assert not any(place.path.startswith("/etc") for place in software)


def test_hosts_with_the_same_steps_are_named_once():
    same = {"steps": ["remove /x"], "stays": ["/home/train"]}
    text = summary({"n1": same, "n2": same, "n3": {"steps": [], "stays": []}, "n4": {}}, check=True)
    assert text.splitlines() == [
        "n1, n2: remove.yml would", "  remove /x", "  What stays:", "    /home/train",
        "n3: nothing of trainyard is there to remove.",
    ]  # fmt: skip
    assert summary({"n1": same}, check=False).startswith("n1: done:")


def test_every_role_of_site_yml_is_recorded():
    plays = yaml.safe_load((PROJECT / "playbooks/provision.yml").read_text())
    first, last = plays[0], plays[-1]
    assert [play["tasks"][0]["site_nodes"]["state"] for play in (first, last)] == ["open", "closed"]
    tags = {tag for play in plays for task in play.get("tasks", ()) for tag in tags_of(task)} - {"always"}
    assert len(tags) > 15 and tags <= set(first["tags"]) == set(last["tags"])
    assert not {"always", "validate", "verify"} & set(first["tags"])


def tags_of(task):
    found = task.get("tags", [])
    return [found] if isinstance(found, str) else found
