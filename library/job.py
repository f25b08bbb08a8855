#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action plugin job."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: job
short_description: Take one step of a job on all its nodes, or with its scheduler
description: The steps of the role C(job), in their order. The examples have the options of each step.
options:
  step:
    description:
      - V(prepare) checks the job file, places the ranks, lets every node check its node plan, and writes C(plan.json)
        and the source archive to the run's folder. Nothing is started. It reports all findings of the job file and of
        every node at once, and uses cached facts of an earlier launch where the node confirms them. A job for Slurm or
        Kubernetes queries the scheduler and no node; the submitted files are beside the plan.
      - V(start) sends each node its share of the plan, the source and the secrets, which go through standard input
        alone. A job of Slurm or Kubernetes is submitted, and its id in the scheduler is recorded in the run's folder.
      - V(watch) prints progress from the head node or the job's scheduler, and from another node after it has taken
        over as head. Without answers it asks as long as the job's monitors may live (60 seconds for a scheduler), and
        then fails with the commands for a job that goes on. It ends nothing, and interrupting the command does not
        affect the job.
      - V(collect) copies the logs of all nodes into the run's folder, and returns the state of the job on each node, or
        in its scheduler.
      - V(report) writes C(summary.json) and C(report.html) into the run's folder, from its plan, its collected logs and
        the nodes' answers. A record of the end is written once; later calls only print the state of the nodes.
    type: str
    choices: [prepare, start, watch, collect, report]
    required: true
  run_dir: {description: Folder of the run on the controller., type: path}
  job:
    description: The variables of the job file, C(job_*), as docs/job-file.md describes them; names only for secrets.
    type: dict
  given:
    description: Names of all variables that begin with C(job_), to find misspelt ones.
    type: list
    elements: str
  hosts:
    description: The hosts of the job in the order of their ranks, or those from which its scheduler chooses.
    type: list
    elements: str
  available: {description: Number of hosts in the group of the job., type: int}
  known_hosts: {description: All hosts of the inventory., type: list, elements: str}
  submit_host:
    description: Host that submits the job to its scheduler; empty over ssh, or without such a host in the inventory.
    type: str
  runs_dir: {description: Folder on the controller that holds the folders of all runs., type: path}
  state_dir: {description: Folder on the nodes that holds C(jobs/)., type: str}
  facts_file: {description: File on the controller that caches the nodes' facts between launches., type: path}
  excluded_file: {description: File on the controller that records the hosts that jobs excluded., type: path}
  user:
    description: The training user. With O(stop), processes that this user began during the job are named.
    type: str
  mpi_prefix: {description: Installation of Open MPI by the role openmpi., type: str}
  all_reduce:
    description: The optional program all_reduce_perf of nccl-tests on the nodes, for the health check.
    type: str
  venvs: {description: "Folder of the cluster's Python environments, which may have tools.", type: str}
  asked_by: {description: The playbook that runs the job., type: str}
  topology:
    description: File with the switches of the nodes, in the form of C(topology.conf).
    type: path
    default: ""
  found: {description: Further findings to report with the others., type: list, elements: dict, default: []}
  follow:
    description: >-
      Ranks whose lines V(watch) prints, V(all) or a text such as V(0,4-7), of at most 64 nodes; V(prepare) checks it.
      Not for jobs of Slurm or Kubernetes.
    type: raw
    default: ""
  live:
    description: >-
      Write C(report.html) anew every 10 seconds, as a page that reloads itself; of at most 64 nodes. V(prepare) checks
      it. Not for jobs of Slurm or Kubernetes.
    type: bool
    default: false
  record:
    description: >-
      The job is a playbook's own, and not a user's run. V(prepare) returns findings as RV(refused) and V(watch) returns
      RV(lost), and they do not fail.
    type: bool
    default: false
  until_lost: {description: V(watch) also ends once the loss is lost (bisect.yml)., type: bool, default: false}
  wait: {description: "Whether the caller waits for the end; if not, further commands are printed.", type: bool}
  secret_env: {description: Secret variables of the ranks., type: dict, default: {}}
  secret_files: {description: "Secret files of the job's folder by name, base64.", type: dict, default: {}}
  events:
    description: The variables job_events, job_events_secret and job_events_interval, for hosts that may lead the job.
    type: dict
    default: {}
  registry_auth:
    description: The variable job_registry_auth, for the hosts of an allocation, which bring the image themselves.
    type: dict
    default: {}
  stop: {description: End remaining processes of the job first., type: bool}
  asked:
    description: >-
      The purpose. V(end) fails unless the job succeeded, V(stop) if processes remain or its end is unknown; V(tell)
      prints, V(record) does not. Only V(stop) ends a job of Slurm or Kubernetes.
    type: str
    choices: [end, stop, tell, record]
  log_limit: {description: "Upper bound for each log, in bytes; of a longer log, the end is copied.", type: int}
  not_started: {description: Answers of nodes that could not start their ranks., type: dict, default: {}}
  answers: {description: RV(answers) of the step V(collect)., type: dict, default: {}}
  notes: {description: RV(notes) of the step V(collect)., type: list, elements: str, default: []}
  job_state:
    description: >-
      Instead of O(answers), RV(job_state) of the step V(collect). Without C(state) the scheduler gave no answer, and
      C(msg) says why.
    type: dict
attributes:
  check_mode:
    support: partial
    description: >-
      V(prepare) shows the plan, and replaces the one of the previous check. V(collect) and V(report) end nothing and
      write no file. V(start) is not called.
"""

EXAMPLES = r"""
- name: Prepare the job
  job:
    step: prepare
    job: {job_name: digits, job_launcher: torchrun, job_command: [python, train.py]}
    given: [job_name, job_launcher, job_command]
    hosts: [n1, n2]
    available: 2
    submit_host: ""
    known_hosts: [n1, n2]
    runs_dir: runs
    state_dir: /var/lib/trainyard
    facts_file: runs/.facts.json
    excluded_file: runs/.excluded-lab.json
    user: train
    mpi_prefix: /opt/trainyard/openmpi
    all_reduce: /opt/trainyard/nccl-tests/bin/all_reduce_perf_mpi
    venvs: /opt/trainyard/venvs
    asked_by: launch.yml
  register: run

- name: Start the job
  job: {step: start, run_dir: "{{ run.run_dir }}", user: train, wait: true}

- name: Watch the job
  job: {step: watch, run_dir: "{{ run.run_dir }}"}

- name: Copy the logs
  job: {step: collect, run_dir: "{{ run.run_dir }}", stop: false, asked: tell, user: train, log_limit: 4194304}
  register: collected

- name: Print the state of a job
  job:
    step: report
    run_dir: "{{ run.run_dir }}"
    answers: "{{ collected.answers }}"
    asked: tell
    excluded_file: runs/.excluded-lab.json
"""

RETURN = r"""
job_id: {description: Name of the run; empty with findings., returned: prepare and start, type: str}
job_dir: {description: Its folder on the nodes., returned: prepare, type: str}
run_dir: {description: Its folder on the controller., returned: prepare, type: str}
settings: {description: Settings for the tasks of its scheduler., returned: prepare, type: dict}
refused:
  description: All findings, each with host, check, found, expected and action.
  returned: prepare
  type: list
facts_file: {description: The file with the cached facts., returned: prepare, type: str}
not_started: {description: "Answers of nodes that could not start their ranks, by host.", returned: start, type: dict}
interrupted:
  description: The command was interrupted before any node was visited; nothing was started.
  returned: start, only then
  type: bool
goes_on: {description: Whether the job still ran when the command was interrupted., returned: watch, type: bool}
lost:
  description: >-
    Why it is not known whether the job has ended, as the nodes or the scheduler gave no more answers; or an empty
    string.
  returned: watch
  type: str
answers:
  description: By host, the result of C(collect) in module_utils/trainyard_node/agent.py, or why there is none.
  returned: collect, where the job runs over ssh
  type: dict
notes:
  description: Lines about the files of C(job_outputs) that were written, and about those that were left out.
  returned: collect, where the job runs over ssh
  type: list
job_state:
  description: The state in the job's scheduler (C(JobState) of module_utils/trainyard/job/schedulers).
  returned: collect, where a scheduler runs the job
  type: dict
state:
  description: V(succeeded), V(failed), V(timed_out), V(stopped), V(running) or V(lost).
  returned: report
  type: str
left:
  description: Hosts that did not answer or where processes of the job still run.
  returned: report
  type: list
"""
