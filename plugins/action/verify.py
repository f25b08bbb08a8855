# SPDX-License-Identifier: Apache-2.0
"""Read all nodes, and check them together. Documentation: library/verify.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible.module_utils.trainyard.base.findings import UnusableError
from ansible.module_utils.trainyard.verify import devices, drift, storage
from ansible.module_utils.trainyard_controller.ansible.action_plugin import DOCUMENTED, Steps
from ansible.module_utils.trainyard_controller.job.folder_sharing import with_folders
from ansible.module_utils.trainyard_controller.nodes.machine_facts import ask_machines
from ansible.module_utils.trainyard_controller.runs.inventory_options import inventory_named
from ansible.module_utils.trainyard_controller.verify import measurements, reaching, scheduling
from ansible.module_utils.trainyard_controller.verify.report_compare import compare_reports

Records = list[dict[str, Any]]


class ActionModule(Steps):
    def read(
        self,
        hosts: list[str],
        network: str,
        user: str,
        root: str,
        venvs: str,
        ascend_root: str,
        limit_s: float,
        devices_only: bool = DOCUMENTED,
        tree: str = DOCUMENTED,
    ) -> dict[str, Any]:
        nodes = self.fan_out()
        settings = {"network": network, "user": user, "root": root, "venvs": venvs, "ascend_root": ascend_root}
        answers = ask_machines(nodes, hosts, {**settings, "devices_only": devices_only, "tree": tree}, limit_s)
        if not devices_only:
            for host, clock in nodes.clocks([host for host in answers if "facts" in answers[host]], limit_s).items():
                answers[host]["clock"] = clock
        return {"answers": answers}

    def drift(
        self,
        results: dict[str, Any],
        groups: dict[str, Any],
        ignore: list[str],
        max_clock_offset: float,
        inventory: str,
    ) -> dict[str, Any]:
        checks, found = drift.verify(
            results, groups=groups, ignore=ignore, max_clock_offset=max_clock_offset, inventory=inventory
        )
        return {"checks": [check.as_dict() for check in checks], "groups": found}

    def devices(
        self,
        results: dict[str, Any],
        inventory: str,
        before: dict[str, Any] | None = DOCUMENTED,
        groups: dict[str, Any] = DOCUMENTED,
        allowed_growth: dict[str, Any] = DOCUMENTED,
        xids: list[int] = DOCUMENTED,
    ) -> dict[str, Any]:
        allowed = {name: int(growth) for name, growth in allowed_growth.items()}
        checks = devices.verify(results, before, groups=groups, allowed=allowed, xids=xids, inventory=inventory)
        return {"checks": [check.as_dict() for check in checks]}

    def reach(
        self,
        results: dict[str, Any],
        peers: str,
        names: bool,
        ssh: bool,
        ssh_peers: str,
        ssh_parallel: int,
        addresses: list[str],
        user: str,
        network: str,
        timeout_s: int,
        life_s: int,
        limit_s: float,
        inventory: str,
    ) -> dict[str, Any]:
        request = reaching.Request(
            peers=peers,
            names=names,
            ssh=ssh,
            ssh_peers=ssh_peers,
            ssh_parallel=ssh_parallel,
            addresses=addresses,
            user=user,
            network=network,
            timeout_s=timeout_s,
            life_s=life_s,
            limit_s=limit_s,
            inventory=inventory,
        )
        return reaching.try_all(self.fan_out(), results, request, self.task_vars["groups"].get("rdma", ()))

    def storage(
        self,
        hosts: list[str],
        paths: list[str],
        bytes: int,
        user: str,
        state: str = DOCUMENTED,
        command: str = DOCUMENTED,
    ) -> dict[str, Any]:
        nodes, settings = self.fan_out(), {"paths": paths, "user": user, "size": bytes, "state": state}

        def ask(asked: list[str], name: str = "") -> dict[str, Any]:
            shared = {**settings, "hosts": len(asked), "name": name}
            return nodes.ask("storage", {host: {} for host in asked}, shared, storage.limit_s(paths))

        alone = ask(hosts[:1]) if len(hosts) > 1 else {}
        together, folders = with_folders(nodes.ask, paths, user, lambda shared: ask(hosts, shared["name"]))
        again = ask(hosts) if storage.has_slow(paths, together) else {}
        checks = storage.verify(paths, alone, together, folders, again, command)
        return {"checks": [check.as_dict() for check in checks]}

    def compute(
        self, run_dir: str | None = DOCUMENTED, refused: Records = DOCUMENTED, command: str = DOCUMENTED
    ) -> dict[str, Any]:
        return measurements.check_devices(Path(run_dir or ""), refused, command)

    def collective(
        self,
        run_dir: str | None = DOCUMENTED,
        refused: Records = DOCUMENTED,
        name: str = DOCUMENTED,
        command: str = DOCUMENTED,
    ) -> dict[str, Any]:
        if refused:
            return measurements.refuse_collective(refused, name, command)
        if not run_dir:
            raise UnusableError("neither run_dir nor refused is given, expected the folder of a run, or its findings")
        return measurements.check_collective(Path(run_dir), name, command)

    def pairs(
        self, hosts: list[str], source: str, rounds: str = DOCUMENTED, schedule: list[Any] = DOCUMENTED
    ) -> dict[str, Any]:
        chosen, folder = measurements.prepare_pairs(hosts, rounds, schedule, Path(source))
        return {"changed": bool(folder), "rounds": chosen, "source": folder}

    def stragglers(
        self,
        hosts: list[str],
        run_dir: str | None = DOCUMENTED,
        schedule: list[Any] = DOCUMENTED,
        measured: Records = DOCUMENTED,
        refused: Records = DOCUMENTED,
        expected: float | None = DOCUMENTED,
        tolerance: float | None = DOCUMENTED,
        inventory: str = DOCUMENTED,
    ) -> dict[str, Any]:
        return measurements.verify_pairs(
            hosts,
            Path(run_dir) if run_dir else None,
            schedule,
            measured,
            refused=refused,
            expected=expected,
            tolerance=tolerance,
            inventory=inventory,
        )

    def compare(
        self,
        tolerance: float,
        runs: str | None = DOCUMENTED,
        earlier: str | None = DOCUMENTED,
        later: str | None = DOCUMENTED,
    ) -> dict[str, Any]:
        before, after, folder = (Path(path) if path else None for path in (earlier, later, runs))
        return {"comparison": compare_reports(before, after, folder, tolerance, inventory_named())}

    def schedule(
        self,
        cluster: str,
        folder: str,
        sources: list[str],
        runs: str,
        every: str,
        timer: bool,
        systemd: str = DOCUMENTED,
    ) -> dict[str, Any]:
        given = {"cluster": cluster, "folder": folder, "inventory": sources, "runs": runs}
        return scheduling.plan({**given, "every": every, "timer": timer, "systemd": systemd})
