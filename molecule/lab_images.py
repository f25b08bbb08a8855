"""Images for jobs on the lab's nodes: the lab's own image, changed, as no registry is in reach."""

from __future__ import annotations

import hashlib
import json
import subprocess
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from lab_jobs import LAB, PROJECT, Node


def podman(*argv: str, stdin: IO[bytes] | None = None, stdout: IO[bytes] | None = None) -> str:
    """Run Podman on the machine of the lab; return its output if `stdout` does not get it."""
    env = ("env", f"CONTAINERS_CONF={PROJECT / 'molecule/default/containers.conf'}")
    output = stdout or subprocess.PIPE
    done = subprocess.run([*env, "podman", *argv], check=True, stdin=stdin, stdout=output, stderr=subprocess.PIPE)
    return (done.stdout or b"").decode().strip()


def of_user(node: Node, command: str) -> str:
    """Run a command as the training user, with its folder of running containers."""
    whole = f"cd / && XDG_RUNTIME_DIR=/run/user/$(id -u train) runuser -u train -- {command}"
    return node.host.check_output(whole)


def containers(nodes: Mapping[str, Node]) -> dict[str, str]:
    """Return the containers of the training user by node; {} for none."""
    return {name: found for name, node in nodes.items() if (found := of_user(node, "podman ps -aq"))}


def put(archive: Path, node: Node, path: str) -> None:
    """Copy an archive to a node."""
    with archive.open("rb") as content:
        podman("exec", "--interactive", node.container, "sh", "-c", f"cat > {path} && chmod 644 {path}", stdin=content)


def lab_image(folder: Path) -> Path:
    """Write the lab's image as a folder (OCI image layout)."""
    base = podman("inspect", "--format", "{{.ImageName}}", f"{LAB}-n1")
    podman("save", "--quiet", "--format", "oci-dir", "--uncompressed", "--output", str(folder), base)
    return folder


def with_mark(folder: Path, mark: str, archive: Path, layer: Path | None = None) -> Path:
    """Write the image of lab_image as an archive, with MARK in the environment of its programs.

    `layer` is a tar file on top of its files, which moves into `folder`.
    """
    blobs = folder / "blobs/sha256"

    def kept(content: bytes) -> dict[str, Any]:
        name = hashlib.sha256(content).hexdigest()
        (blobs / name).write_bytes(content)
        return {"digest": f"sha256:{name}", "size": len(content)}

    def blob(entry: Mapping[str, Any]) -> Any:
        return json.loads((blobs / entry["digest"].partition(":")[2]).read_bytes())

    index = json.loads((folder / "index.json").read_bytes())
    manifest = blob(index["manifests"][0])
    config = blob(manifest["config"])
    # Many images name a user, as those of playbooks/image.yml do: ranks run as the training user all the same.
    config["config"]["User"] = "0"
    config["config"]["Env"] = [*config["config"].get("Env", ()), f"MARK={mark}"]
    if layer:
        with layer.open("rb") as content:
            name = hashlib.file_digest(content, "sha256").hexdigest()
        added = {"digest": f"sha256:{name}", "size": layer.stat().st_size}
        layer.rename(blobs / name)
        manifest["layers"].append({"mediaType": "application/vnd.oci.image.layer.v1.tar", **added})
        config["rootfs"]["diff_ids"].append(added["digest"])
        config.pop("history", None)
    manifest["config"].update(kept(json.dumps(config).encode()))
    index["manifests"][0].update(kept(json.dumps(manifest).encode()))
    marked = folder / f"{mark}.json"
    marked.write_text(json.dumps(index))
    with tarfile.open(archive, "w") as packed:
        for path, name in ((folder / "oci-layout", "oci-layout"), (marked, "index.json"), (folder / "blobs", "blobs")):
            packed.add(path, name)
    return archive
