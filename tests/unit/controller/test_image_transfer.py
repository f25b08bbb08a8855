"""How the controller has nodes bring an image: all at once, or first one of them, from which the others copy it."""

from types import SimpleNamespace

import pytest
from ansible.module_utils.trainyard.job.plan import image_transfer
from job_samples import briefly, make_job

ARCHIVE = "oci-archive:/images/torch.tar"


class Nodes:
    """Nodes that answer as many visits with `not yet` as `visits` says, then with what `problems` has of them."""

    def __init__(self, visits=1, **problems):
        self.left, self.problems, self.asked = visits, problems, []

    def ask(self, question, own):
        self.asked.append((question, sorted(own), {host: each["image"].get("source") for host, each in own.items()}))
        if own[next(iter(own))]["image"]["begin"]:
            self.visits = self.left
        self.visits -= 1
        return {host: self._answer(host) for host in own}

    def _answer(self, host):
        if self.problems.get(host) == "silent":
            return {"failed": True, "msg": "no answer within 60 s"}
        done = self.visits < 0
        return {
            "done": done,
            "problem": self.problems.get(host, "") if done else "",
            "line": "Copying blob",
            "id": "sha256:one",
        }


def nodes(*with_image):
    return [
        SimpleNamespace(
            host=host, address=f"10.0.0.{host[1]}", image={"id": "sha256:one" if host in with_image else ""}
        )
        for host in ("n1", "n2", "n3")
    ]


def bring(there, *with_image, **job):
    lines = []
    transfer = image_transfer.Transfer(there.ask, lines.append, "train", {})
    asked = {"reference": ARCHIVE, "kind": "archive"}
    found = image_transfer.bring(transfer, make_job(image=ARCHIVE, **job), nodes(*with_image), asked)
    return found if found is None else briefly(found), lines


def test_nothing_is_asked_where_all_nodes_have_the_image():
    there = Nodes()
    assert bring(there, "n1", "n2", "n3") == (None, []) and there.asked == []


def test_nodes_that_lack_it_bring_it_at_the_same_time_and_a_line_says_how_far_they_are():
    there = Nodes()
    assert bring(there, "n1") == ([], ["  0:00:00   image: 0 of 2 nodes done; not yet n2, n3; n2: Copying blob"])
    assert there.asked == [("bring_image", ["n2", "n3"], {"n2": "", "n3": ""})] * 2


def test_the_others_copy_it_from_the_node_that_is_named():
    there = Nodes(visits=0)
    assert bring(there, image_copy="n2") == ([], [])
    assert there.asked == [
        ("bring_image", ["n2"], {"n2": ""}),
        ("bring_image", ["n1", "n3"], {"n1": "10.0.0.2", "n3": "10.0.0.2"}),
    ]
    there = Nodes(visits=0)
    bring(there, "n2", image_copy="n2")
    assert [question for question, _, _ in there.asked] == ["bring_image"]


@pytest.mark.parametrize(
    ("why", "action"),
    [
        ("99 MiB free in /srv, and 200 MiB are needed", "free space there"),
        ("... (write /usr/bin/x: no space left on device): exit status 1", "free space there"),
        ("Error: no such image", "correct job_image"),
    ],
)
def test_a_full_disk_is_told_from_a_wrong_image(why, action):
    there = image_transfer.Transfer(Nodes(visits=0, n2=why).ask, print, "train", {})
    (found,) = image_transfer.bring(
        there, make_job(image=ARCHIVE), nodes("n1", "n3"), {"reference": ARCHIVE, "kind": "archive"}
    )
    assert found.action.startswith(action)


def test_why_a_node_could_not_bring_it_is_a_finding_and_none_copies_from_it():
    there = Nodes(visits=0, n2="no space left", n3="silent")
    found, _ = bring(there)
    assert found == [
        ("n2", "image", f"{ARCHIVE} could not be brought: no space left"),
        ("n3", "image", f"{ARCHIVE} could not be brought: no answer within 60 s"),
    ]
    there = Nodes(visits=0, n2="no space left")
    assert len(bring(there, image_copy="n2")[0]) == 1 and len(there.asked) == 1
