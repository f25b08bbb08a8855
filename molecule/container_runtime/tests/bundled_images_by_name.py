"""Images of jobs travel in a bundle, from a registry by skopeo and from a file: minutes, so it runs by name.

pytest tests/bundled_images_by_name.py in the scenario's folder, after `make molecule SCENARIO=container_runtime`; it
needs the package skopeo. The registry is a small one of the test, without TLS: it serves one image.
"""

import http.server
import json
import tarfile
import threading
from pathlib import Path

import pytest
from lab_jobs import WORKER
from test_image_jobs import archives

# A fixture that others have by its name.
__all__ = ["archives"]
FOLDER = "/var/lib/trainyard-root/bundle/images"


class Registry(http.server.BaseHTTPRequestHandler):
    """Answers with the blobs of an image's archive, and with its manifest."""

    def do_GET(self):
        digest = self.path.rpartition("sha256:")[2]
        blob = self.server.folder / "blobs/sha256" / digest
        content = blob.read_bytes() if len(digest) == 64 else b"{}"
        self.send_response(200)
        kind = "vnd.oci.image.manifest.v1+json" if "/manifests/" in self.path else "octet-stream"
        self.send_header("Content-Type", f"application/{kind}")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_):
        """Say nothing."""


@pytest.fixture
def image(archives, tmp_path):
    """The image `one` in a registry, by its digest."""
    with tarfile.open(archives["one"]) as archive:
        archive.extractall(tmp_path / "registry", filter="data")
    (manifest,) = json.loads((tmp_path / "registry/index.json").read_text())["manifests"]
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Registry)
    server.folder = tmp_path / "registry"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    registry = f"127.0.0.1:{server.server_port}"
    without_tls = Path("/etc/containers/registries.conf.d/trainyard-test.conf")
    without_tls.parent.mkdir(parents=True, exist_ok=True)
    without_tls.write_text(f"[[registry]]\nlocation = '{registry}'\ninsecure = true\n")
    yield f"docker://{registry}/ml/one@{manifest['digest']}"
    without_tls.unlink()
    server.shutdown()


def test_images_of_a_bundle_run_on_the_nodes(run_playbook, play, archives, image, tmp_path):
    given = {
        "trainyard_frameworks": ["container_runtime"],
        "container_runtime_images": [image, f"oci-archive:{archives['two']}"],
        "trainyard_lock": str(tmp_path / "trainyard.lock"),
    }
    run_playbook("playbooks/lock.yml", **given).expect(0, f"image: {image}")
    run_playbook("playbooks/lock.yml", **given).changes_nothing()
    where = {"bundle_path": str(tmp_path), "bundle_key": str(tmp_path / "key")}
    run_playbook("playbooks/bundle.yml", **given, **where).expect(0)
    (bundle,) = tmp_path.glob("*.bundle")
    files = {path.name.partition("-")[0]: path.name for path in (bundle / "images").iterdir()}
    assert set(files) == {"one", "two"}
    try:
        run_playbook("playbooks/bundle_use.yml", **given, trainyard_bundle=str(bundle)).expect(0)
        run_playbook("playbooks/bundle_use.yml", **given, trainyard_bundle=str(bundle)).changes_nothing()
        for mark, file in files.items():
            command = {"job_nodes": 2, "job_command": ["sh", "-c", "echo $MARK"]}
            run = play.launch(WORKER, **command, job_image=f"oci-archive:{FOLDER}/{file}")
            run.expect(0)
            assert run.log(1) == f"{mark}\n"
    finally:
        run_playbook("playbooks/bundle_leave.yml", bundle_remove=True).expect(0)
