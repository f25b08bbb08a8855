"""An image that only one node has is copied to the others: a minute, so it runs by name.

pytest tests/copy_by_name.py in the scenario's folder, after `make molecule SCENARIO=container_runtime`.
"""

from lab_images import of_user, put
from lab_jobs import WORKER
from test_image_jobs import archives, image

# Fixtures that the test has by their names.
__all__ = ["archives", "image"]


def test_the_image_is_copied_from_the_node_that_has_it(play, archives, nodes, left):
    put(archives["two"], nodes["n1"], "/srv/job-image.tar")
    nodes["n2"].host.check_output("rm -f /srv/job-image.tar")
    of_user(nodes["n2"], "podman rmi --all --force")
    of_two = {"job_nodes": 2, "job_image": "oci-archive:/srv/job-image.tar"}
    run = play.launch(WORKER, **of_two, job_image_copy="n1", job_command=["sh", "-c", "echo $MARK"])
    run.expect(0)
    assert run.log(1) == "two\n"
