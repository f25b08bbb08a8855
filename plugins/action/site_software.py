# SPDX-License-Identifier: Apache-2.0
"""Check, lock and bundle the software of all hosts. Documentation: library/site_software.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible.errors import AnsibleError
from ansible.module_utils.trainyard.base.findings import Finding, FindingsError, UnusableError
from ansible.module_utils.trainyard.bundle import bundled_images, contents, held, locked_files, site_lock, systems, use
from ansible.module_utils.trainyard.cluster.sharing import of_folders
from ansible.module_utils.trainyard.software import pytorch, requested
from ansible.module_utils.trainyard_controller.ansible.action_plugin import DOCUMENTED, Steps
from ansible.module_utils.trainyard_controller.bundle import (
    bundling,
    controller_locking,
    file_locking,
    site_locking,
    software_requests,
)
from ansible.module_utils.trainyard_controller.bundle.built_archives import rewrite
from ansible.module_utils.trainyard_controller.bundle.bundle_use import Bundle
from ansible.module_utils.trainyard_controller.bundle.file_sources import packed_pip, source_findings
from ansible.module_utils.trainyard_controller.job.folder_sharing import with_folders
from ansible.module_utils.trainyard_controller.nodes.fan_out import is_silent

# Seconds. An index may be slow to answer first, each package is one request, apt simulates, and data sets are read.
_LIMIT_S = 300.0
_NOT_COPIED = "The build cannot be copied: {count} {findings}. Nothing was unpacked."
_NOT_LOCKED = "The software cannot be locked: {count} {findings}. No lock was written."
_NOT_USED = "Nothing can be installed from the bundle: {count} {findings}. Nothing was changed."


class ActionModule(Steps):
    def request(self, hosts: list[str], part: str, variable: str) -> dict[str, Any]:
        requests = {}
        for host in hosts:
            try:
                requests[host] = self.value_on(host, variable)
            except AnsibleError as error:
                raise UnusableError(f"{host}: the request of {part}: {error}") from error
        software_requests.record(part, requests)
        return {"requests": requests}

    def check(self, hosts: list[str], folders: dict[str, str], user: str) -> dict[str, Any]:
        requests = software_requests.recorded()
        findings = list(requested.input_findings(requests))
        nodes = self.fan_out()
        own = {
            host: {"requests": {name: part for name, part in requests[host].items() if not part.get("findings")}}
            for host in hosts
            if host in requests
        }
        answers, of_hosts = with_folders(
            nodes.ask,
            [*folders.values()],
            user,
            lambda sharing: nodes.ask("can_install", own, {"sharing": sharing} if len(own) > 1 else None, _LIMIT_S),
        )
        # A second visit to hosts that have to query an index.
        queries = {host: own[host] for host, answer in answers.items() if answer.get("asks_index")}
        pip = packed_pip() if queries else ""
        if pip:
            answers = {**answers, **nodes.ask("can_install", queries, {"pip": pip}, _LIMIT_S)}
        good = {host: answer for host, answer in answers.items() if "findings" in answer}
        findings += [*nodes.silent_findings(answers), *_findings(good)]
        sharing = of_folders(own, folders.values(), of_hosts)
        groups = {path: [list(group) for group in each.groups] for path, each in sharing.items()}
        findings += requested.build_findings(requests, good, groups)
        needed = {host: answer["files"] for host, answer in good.items()}
        findings += source_findings(requested.needed_of_controller(requests, needed))
        seen = {host: requested.seen_of(requests[host], answer["seen"]) for host, answer in good.items()}
        return {
            "findings": [finding.as_dict() for finding in findings],
            "seen": seen,
            "sharing": groups,
            "summary": [
                f"{name} ({path}) is {sharing[path].text()}" for name, path in folders.items() if sharing[path].shared
            ],
        }

    def choose_pytorch(self, hosts: list[str], variable: str) -> dict[str, Any]:
        own = {host: self.value_on(host, variable) for host in hosts}
        own = {host: arguments for host, arguments in own.items() if arguments}
        nodes = self.fan_out()
        # A host without an answer is a finding of what comes next.
        answers = {host: each for host, each in nodes.ask("pytorch_offer", own).items() if each and not is_silent(each)}
        queries = {host: own[host] for host, answer in answers.items() if answer["asks_index"]}
        if queries and pytorch.may_be_cpu(answers):
            # A new node takes the Python of the others.
            pythons = {answer["python"] for answer in answers.values() if answer["python"]}
            shared = {"pip": packed_pip(), "python": pythons.pop() if len(pythons) == 1 else ""}
            found = nodes.ask("pytorch_offer", queries, shared, _LIMIT_S)
            answers |= {host: answer for host, answer in found.items() if answer and not is_silent(answer)}
        return {"chosen": pytorch.choose(answers)}

    def check_builds(self, hosts: list[str], folder: str) -> dict[str, Any]:
        if self._task.check_mode:
            return {}
        if findings := [each for host in hosts for each in rewrite(host, Path(folder, f"{host}.tar.gz"))]:
            raise FindingsError(findings, _NOT_COPIED)
        return {}

    def lock(
        self,
        hosts: list[str],
        path: str,
        upgrade: bool = DOCUMENTED,
        mirrors: dict[str, str] = DOCUMENTED,
        controllers: list[str] = DOCUMENTED,
        also: list[str] = DOCUMENTED,
    ) -> dict[str, Any]:
        requests, pinned, of_hosts, findings = site_locking.recorded(self.task_vars, hosts)
        found_images, of_images = site_locking.images_of(bundled_images.wanted(requests, of_hosts))
        findings += [*requested.input_findings(requests), *of_images]
        if findings:
            raise FindingsError(findings, _NOT_LOCKED)
        file = Path(path)
        old = site_locking.read(file)
        wanted = site_lock.wanted(pinned, of_hosts)
        fresh = upgrade or self._task.check_mode
        kept = site_lock.unchanged(None if fresh else old, wanted)
        show = self._display.display
        found = site_locking.resolve(site_lock.without(wanted, kept), mirrors, show)
        request = controller_locking.Request(controllers, also)
        own, of_controller = controller_locking.resolve(request, old, fresh, mirrors, show)
        asked = locked_files.with_old(locked_files.requested(requests), old["files"] if old and not upgrade else ())
        archives, of_files = file_locking.resolve(asked, show)
        if findings := [*found.findings, *of_controller, *of_files]:
            raise FindingsError(findings, _NOT_LOCKED)
        lock = site_lock.lock(wanted, kept, found.debs, found.wheels, requests, own, found.absent)
        lock |= {"files": [locked_files.entry(each) for each in archives], "images": found_images}
        changed = old != lock
        if changed and not self._task.check_mode:
            site_locking.write(file, lock)
        changes = site_lock.changes(old, lock) if old else []
        show("\n".join([*changes, *site_lock.summary(lock)]))
        return {"changed": changed, "changes": changes, "lock": path}

    def compare(self, path: str, hosts: list[str]) -> dict[str, Any]:
        lock = site_locking.read(Path(path))
        if lock is None:
            return {"findings": [held.absent(path).as_dict()], "nodes": {}}
        _, requests, of_hosts, findings = site_locking.recorded(self.task_vars, hosts)
        findings += use.lacking(lock, requests, of_hosts, "lock", held.AGAIN)
        try:
            versions = {
                system: use.versions(lock, system)
                for system in set(of_hosts.values())
                if str(system) in lock["systems"]
            }
        except site_lock.LockError as error:
            raise UnusableError(f"{path} cannot be used: {error}. Run playbooks/lock.yml again.") from error
        if not findings:
            findings = self._lacking(requests, {host: versions[system] for host, system in of_hosts.items()})
        preferences = {system: held.preferences(found) for system, found in versions.items()}
        nodes = {
            host: {"folder": "", "environments": pins, "preferences": preferences[of_hosts[host]]}
            for host, pins in use.pins(lock, requests, of_hosts).items()
        }
        return {"findings": [finding.as_dict() for finding in findings], "nodes": nodes}

    def bundle(
        self, path: str, name: str, folder: str, key: str, version: str, since: str = DOCUMENTED
    ) -> dict[str, Any]:
        lock = site_locking.read(Path(path))
        if lock is None:
            raise UnusableError(f"There is no lock {path}: run playbooks/lock.yml first.")
        target = Path(folder) / contents.name(name, site_lock.text(lock))
        items = contents.items(lock)
        older = Path(since).expanduser() if since else None
        if older:
            items = contents.new_since(items, bundling.older_sums(older))
        if self._task.check_mode:
            missing = contents.missing(lock)
            self._display.display("\n".join(contents.listing(items, missing)))
            return {"changed": not target.exists(), "bundle": str(target), "missing": missing}
        try:
            whole = target.exists()
            changed = (
                self._follow(items, target) if whole else self._make(lock, items, target, older, Path(key), version)
            )
        except OSError as error:
            raise UnusableError(f"The bundle cannot be written: {error}") from error
        refused = bundling.refused(items, target)
        there, missing = [item for item in items if item not in refused], contents.missing(lock, refused, str(target))
        self._display.display("\n".join(contents.listing(there, missing)[len(there) :]))
        return {"changed": changed, "bundle": str(target), "missing": missing}

    def use_bundle(
        self,
        bundle: str,
        hosts: list[str],
        states: dict[str, Any],
        node_folder: str,
        archives: str,
        fingerprint: str = DOCUMENTED,
        older: bool = DOCUMENTED,
    ) -> dict[str, Any]:
        own = Bundle(Path(bundle).expanduser())
        _, requests, of_hosts, findings = site_locking.recorded(self.task_vars, hosts)
        findings += own.findings(fingerprint) + own.refused(requests)
        findings += use.fit(own.lock, requests, of_hosts)
        there, wrong = use.on_hosts({host: states.get(host) for host in of_hosts}, node_folder)
        findings += wrong + ([] if older else use.older(there, own.made, own.stamp))
        lacking = [host for host, has in there.items() if has.stamp != own.stamp]
        if not findings:
            full = (use.no_room(host, there[host].free_kib, own.kib(of_hosts[host]), node_folder) for host in lacking)
            findings = [finding for finding in full if finding]
        if findings:
            raise FindingsError(findings, _NOT_USED)
        self._display.display(f"{own.folder} is signed by the key {own.fingerprint}, and all of its files are whole")
        if lacking and not self._task.check_mode:
            self._pack(own, {of_hosts[host] for host in lacking}, Path(archives))
        return {
            "changed": bool(lacking),
            "stamp": own.stamp,
            "made": own.made,
            "lacking": lacking,
            "nodes": {
                host: {"folder": node_folder, "system": str(of_hosts[host]), "environments": pins, "files": own.files()}
                for host, pins in use.pins(own.lock, requests, of_hosts).items()
            },
        }

    def _lacking(self, requests: dict[str, Any], versions: dict[str, dict[str, str]]) -> list[Finding]:
        """Return findings on hosts whose apt has not what they lack in the versions of the lock."""
        own = {
            host: {
                "locked": {
                    "versions": versions[host],
                    "packages": sorted(packages),
                    "source": parts.get("node_baseline", {}).get("apt_source", ""),
                }
            }
            for host, parts in requests.items()
            if (packages := use.packages(parts))
        }
        nodes = self.fan_out()
        answers = nodes.ask("can_install", own, {"requests": {}}, _LIMIT_S)
        return nodes.silent_findings(answers) + _findings(answers)

    def _follow(self, items: list[contents.Item], target: Path) -> bool:
        """Bring what wanted a login before into a bundle that is there; return whether something came."""
        self._display.display(f"{target} is there already, made of the same lock")
        before = bundling.refused(items, target)
        self._fetch([item for item in items if item.may_follow], target)
        return bundling.refused(items, target) != before

    def _make(
        self,
        lock: dict[str, Any],
        items: list[contents.Item],
        target: Path,
        older: Path | None,
        key_folder: Path,
        version: str,
    ) -> bool:
        part = target.with_name(f"{target.name}.part")
        self._fetch(items, part)
        key = bundling.Key(key_folder)
        bundling.finish(part, lock, items, older, key, version)
        part.rename(target)
        self._display.display(f"bundle  {target}\nkey     {key.fingerprint}")
        return True

    def _fetch(self, items: list[contents.Item], folder: Path) -> None:
        findings = bundling.fetch(items, folder, self._display.display)
        if findings:
            raise FindingsError(findings, "The bundle is not whole: {count} {findings}.")

    def _pack(self, bundle: Bundle, needed: set[systems.System], archives: Path) -> None:
        try:
            for system in needed:
                bundle.pack(system, archives / f"{system}.tar")
        except OSError as error:
            raise UnusableError(f"The files for the nodes cannot be packed in {archives}: {error}") from error


def _findings(answers: dict[str, Any]) -> list[Finding]:
    """Return the findings of the hosts that answered."""
    return [Finding.from_dict(each).on(host) for host, answer in answers.items() for each in answer.get("findings", ())]
