# SPDX-License-Identifier: Apache-2.0
"""Choose the build of PyTorch for all hosts together. Documentation: library/pytorch_choice.py."""

from __future__ import annotations

from typing import Any

from ansible.module_utils.trainyard.software import pytorch
from ansible.module_utils.trainyard_controller.action_plugin import OnceForAll
from ansible.module_utils.trainyard_controller.fan_out import is_silent
from ansible.module_utils.trainyard_controller.file_sources import packed_pip

# Seconds. An index may be slow to answer first, and each Python is one request.
LIMIT_S = 300.0


class ActionModule(OnceForAll):
    def answer(self, given: dict[str, Any]) -> dict[str, Any]:
        own = {host: self.value_on(host, given["arguments"]) for host in given["hosts"]}
        own = {host: arguments for host, arguments in own.items() if arguments}
        nodes = self.fan_out()
        # A host without an answer is a finding of what comes next.
        answers = {host: each for host, each in nodes.ask("pytorch_offer", own).items() if each and not is_silent(each)}
        queries = {host: own[host] for host, answer in answers.items() if answer["asks_index"]}
        if queries and pytorch.may_be_cpu(answers):
            # A new node takes the Python of the others.
            pythons = {answer["python"] for answer in answers.values() if answer["python"]}
            shared = {"pip": packed_pip(), "python": pythons.pop() if len(pythons) == 1 else ""}
            found = nodes.ask("pytorch_offer", queries, shared, LIMIT_S)
            answers |= {host: answer for host, answer in found.items() if answer and not is_silent(answer)}
        return {"chosen": pytorch.choose(answers)}
