# SPDX-License-Identifier: Apache-2.0
"""Standard output of trainyard's playbooks."""

from __future__ import annotations

DOCUMENTATION = r"""
name: trainyard
type: stdout
short_description: Short output, with all failures at the end
description:
  - Like the default callback, without hosts and tasks that changed nothing (a slow task is announced, then followed by
    a line at most every 10 s), and with the messages of all failures repeated at the end.
  - What a task has installed or downloaded is printed once for all hosts, with its size and the seconds.
  - Findings are printed only there, once for all hosts. A host that does not answer, refused privileges and a missing
    Python are findings, too.
  - Plays with the variable C(trainyard_quiet), which run and watch jobs, print only the texts of C(debug) and C(fail),
    and progress. Tasks with the variable C(trainyard_silent) print no texts of C(debug).
extends_documentation_fragment:
  - default_callback
  - result_format_callback
"""

import shutil
import sys
from collections.abc import Mapping
from copy import copy
from pathlib import Path
from typing import Any

import ansible.module_utils
from ansible import constants as C
from ansible import context
from ansible.plugins.callback import default
from ansible.release import __version__

OLDEST_CORE, OLDEST_PYTHON = (2, 19), (3, 11)
if tuple(map(int, __version__.split(".")[:2])) < OLDEST_CORE or sys.version_info < OLDEST_PYTHON:
    # Otherwise the only message would be about the first filter or plugin that cannot be loaded.
    sys.exit(
        f"{sys.argv[0]} is ansible-core {__version__} with Python {sys.version.split()[0]}, expected ansible-core 2.19 "
        "and Python 3.11, or newer ones. In the project's folder `make .venv/.controller` installs them into .venv; "
        "without make: python3 -m venv .venv; .venv/bin/pip install --require-hashes --only-binary :all: "
        "-r requirements/controller.txt. Then call .venv/bin/ansible-playbook."
    )

ansible.module_utils.__path__.append(str(Path(__file__).resolve().parents[2] / "module_utils"))
from ansible.module_utils.trainyard.base.checks import EXIT_CODES
from ansible.module_utils.trainyard.base.findings import host_list, render
from ansible.module_utils.trainyard.cluster import unreachable
from ansible.module_utils.trainyard.report import next_playbook
from ansible.module_utils.trainyard_controller.ansible import interrupts, task_progress, terminal
from ansible.module_utils.trainyard_controller.ansible.running_task import action_of
from ansible.module_utils.trainyard_controller.runs import launch_record
from ansible.module_utils.trainyard_controller.runs.inventory_options import inventory_given
from ansible.module_utils.trainyard_controller.runs.project import ROOT


class CallbackModule(default.CallbackModule):
    """See DOCUMENTATION."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "stdout"
    CALLBACK_NAME = "trainyard"

    def __init__(self) -> None:
        """Start with nothing seen."""
        super().__init__()
        self._running = terminal.running_task()
        self._quiet = False
        self._only_quiet = True
        # The name of the playbook, if it is one of the project.
        self._playbook = ""
        self._failures: list[tuple[str, str, str]] = []
        # By host: results without a module's answer.
        self._silent: dict[str, Mapping[str, Any]] = {}
        self._inventory: Any = None
        self._interrupts: interrupts.Interrupts

    def v2_playbook_on_start(self, playbook: Any) -> None:
        """Handle Ctrl-C from now on."""

        def tidy() -> None:
            playbook._loader.cleanup_all_tmp_files()
            shutil.rmtree(C.DEFAULT_LOCAL_TMP, ignore_errors=True)

        name = Path(playbook._file_name).name
        if Path(playbook._basedir).resolve() in (ROOT, ROOT / "playbooks"):
            self._playbook = name
        self._interrupts = interrupts.Interrupts(name, inventory_given(), self._display.display, tidy)
        terminal.when_lost(self._interrupts.output_lost)
        self._running.watch()
        super().v2_playbook_on_start(playbook)

    def v2_playbook_on_play_start(self, play: Any) -> None:
        """Print the play's banner, unless it is quiet."""
        self._running.begin(None)
        # A play with `hosts: []` is a step that this inventory does not need.
        self._quiet = bool(play.get_vars().get("trainyard_quiet")) or not play.hosts
        self._inventory = play.get_variable_manager()._inventory
        if not self._quiet:
            self._only_quiet = False
            super().v2_playbook_on_play_start(play)
        else:
            self._play = play

    def v2_playbook_on_task_start(self, task: Any, is_conditional: bool) -> None:
        """Print the task, unless the play is quiet; announce it if it is slow."""
        self._interrupts.task(action_of(task))
        self._begin(task)
        if not self._quiet:
            super().v2_playbook_on_task_start(task, is_conditional)

    def v2_playbook_on_handler_task_start(self, task: Any) -> None:
        """Print the handler like a task."""
        self._begin(task)
        if not self._quiet:
            super().v2_playbook_on_handler_task_start(task)

    def v2_runner_on_start(self, host: Any, task: Any) -> None:
        """Note where the task runs."""
        super().v2_runner_on_start(host, task)
        self._running.started(host.get_name())

    def _begin(self, task: Any) -> None:
        def announce() -> None:
            if self._last_task_banner != task._uuid:
                self._print_task_banner(task)

        task_progress.forget()
        self._running.begin(task, None if self._quiet else announce)

    def _ended(self, result: Any) -> None:
        """Note the end of a task on a host, with what it has installed; a quiet play prints nothing of it."""
        task, action = result.task, action_of(result.task)
        shown = not self._quiet and not task.no_log
        self._running.ended(result.host.get_name(), action, result.result if shown else None)

    def v2_runner_on_async_poll(self, result: Any) -> None:
        """Print nothing: the lines of a slow task do."""

    def v2_runner_on_async_ok(self, result: Any) -> None:
        """Print nothing for the end of a background task, whose result follows."""

    def v2_runner_on_async_failed(self, result: Any) -> None:
        """Print nothing for the end of a background task, whose result follows."""

    def v2_runner_retry(self, result: Any) -> None:
        """Print retries only where details are requested (-v)."""
        if self._display.verbosity:
            super().v2_runner_retry(result)

    def v2_playbook_on_no_hosts_matched(self) -> None:
        """Print it, unless the play is quiet, whose steps are not needed everywhere."""
        if not self._quiet:
            super().v2_playbook_on_no_hosts_matched()

    def v2_playbook_on_include(self, included_file: Any) -> None:
        """Print nothing for includes."""

    def v2_runner_on_ok(self, result: Any) -> None:
        """Print the text of a debug task; print other results as usual, but not in quiet plays."""
        action = action_of(result.task)
        self._ended(result)
        self._interrupts.ok(action, result.result)
        if action in ("include_role", "include_tasks"):
            return
        if action == "debug" and "msg" in result.result:
            if result.task.get_vars().get("trainyard_silent"):
                return
            host = "" if self._quiet or result.task.run_once else f"{result.host.get_name()}: "
            # Other callbacks print no host there, so a text may name it.
            self._display.display(f"{host}{str(result.result['msg']).removeprefix(host)}")
        elif not self._quiet:
            if not result.result.get("changed"):
                # The default callback drops the warnings of hosts that it does not list.
                self._handle_warnings_and_exception(result)
            super().v2_runner_on_ok(result)

    def v2_runner_on_skipped(self, result: Any) -> None:
        """Print nothing for skipped tasks."""
        self._running.ended(result.host.get_name())
        self._interrupts.skipped(action_of(result.task))

    def v2_runner_item_on_skipped(self, result: Any) -> None:
        """Print nothing for skipped tasks."""

    def v2_runner_item_on_failed(self, result: Any) -> None:
        """Print a failed item, unless the play is quiet: then it comes at the end."""
        if not self._quiet:
            super().v2_runner_item_on_failed(result)

    def v2_runner_on_failed(self, result: Any, ignore_errors: bool = False) -> None:
        """Keep the message for the end; print it now, too, unless the play is quiet."""
        self._running.ended(result.host.get_name())
        self._interrupts.failed(action_of(result.task))
        # A task that ignores missing answers reports them itself.
        explained = unreachable.cause(result.result) is not None if ignore_errors else self._explained(result)
        if not explained and not self._quiet:
            super().v2_runner_on_failed(result, ignore_errors)

    def _explained(self, result: Any) -> bool:
        """Keep a failure for the end; return whether no other message about it is needed."""
        host, answer = result.host.get_name(), result.result
        # From ansible-core 2.20 on, a failed item has an exception instead of `failed`.
        items = [item for item in answer.get("results") or () if item.get("failed", "exception" in item)]
        messages = dict.fromkeys(str(item.get("msg")) for item in items)
        message = "\n".join(messages) or str(answer.get("msg") or answer.get("stderr") or answer)
        # A delegated task fails on another host.
        if not (result.task.delegate_to or result.task.loop) and unreachable.cause(answer):
            self._silent[host] = answer
            return True
        # Findings name their hosts, so neither host nor task is printed with them.
        explained = all(each.get("findings") for each in items or [answer])
        self._failures.append((host, "" if explained else result.task.get_name(), message))
        return explained

    def v2_runner_on_unreachable(self, result: Any) -> None:
        """Keep the message for the end, unless the task ignores it."""
        self._running.ended(result.host.get_name())
        if not result.task.ignore_unreachable and not self._explained(result) and not self._quiet:
            super().v2_runner_on_unreachable(result)

    def v2_playbook_on_stats(self, stats: Any) -> None:
        """Print the recap (not for quiet plays), and the failures last."""
        self._running.begin(None)
        self._running.stop()
        failures: dict[tuple[str, str], list[str]] = {}
        for number, (host, task, message) in enumerate(self._failures):
            # A rescued task is no failure, and a message that a rescue repeats is printed once.
            again = any(later == host and message in text for later, _, text in self._failures[number + 1 :])
            if not again and _has_failed(stats, host):
                failures.setdefault((task, message), []).append(host)
        silent = {host: answer for host, answer in self._silent.items() if _has_failed(stats, host)}
        if not self._only_quiet:
            self._recap(stats, silent, any(not task for task, _ in failures))
        # Results arrive in any order; hosts are printed in the order of the inventory.
        known = [host.get_name() for host in self._inventory.get_hosts()] if failures or silent else []
        order = {name: number for number, name in enumerate(known)}
        for (task, message), failed in failures.items():
            hosts = sorted(failed, key=lambda name: order.get(name, -1))
            if task and not self._only_quiet:
                self._display.display(f"\nFAILED on {host_list(hosts)}: {task}", color=C.COLOR_ERROR)
            elif task and hosts != ["localhost"]:
                self._display.display(f"\nFailed on {host_list(hosts)}: {task}", color=C.COLOR_ERROR)
            elif not self._only_quiet:
                self._display.display("")
            self._display.display(message, color=C.COLOR_ERROR)
        if silent:
            answers = {host: silent[host] for host in sorted(silent, key=lambda name: order.get(name, -1))}
            found = unreachable.no_answers(answers, {host: self._address(host) for host in answers})
            self._display.display(render(found, "{count} {findings}:"), color=C.COLOR_ERROR)
        # ansible-playbook has no status for "nothing failed, but something is unknown"; playbooks set the state.
        state = stats.custom.get("_run", {}).get("trainyard_exit")
        if state is not None:
            raise SystemExit(EXIT_CODES[state])
        if self._playbook and not any(_has_failed(stats, host) for host in stats.processed):
            self._show_next()

    def _show_next(self) -> None:
        """Print what follows the playbook."""
        words = [word for word in sys.argv if word not in next_playbook.PREVIEW]
        preview_of = launch_record.command(words) if context.CLIARGS.get("check") else ""
        if text := next_playbook.after(self._playbook, inventory_given(), preview_of):
            self._display.display(text)

    def _recap(self, stats: Any, silent: Mapping[str, Any], found: bool) -> None:
        """Print Ansible's recap without hosts that have findings; none if findings came before any change."""
        hosts = stats.processed
        if (found or silent) and not any(stats.changed.values()):
            return
        shown = copy(stats)
        shown.processed = {host: number for host, number in hosts.items() if host not in silent}
        with terminal.colours():
            super().v2_playbook_on_stats(shown)

    def v2_on_file_diff(self, result: Any) -> None:
        """Print a diff in color."""
        with terminal.colours():
            super().v2_on_file_diff(result)

    def _address(self, name: str) -> str:
        host = self._inventory.get_host(name)
        return str((host.vars if host else {}).get("ansible_host") or name)


def _has_failed(stats: Any, host: str) -> bool:
    summary = stats.summarize(host)
    return bool(summary["failures"] or summary["unreachable"])
