#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action plugin site_software."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: site_software
short_description: Check, lock and bundle the software of all hosts
description: The examples have the options of each step.
options:
  step:
    description:
      - V(request) reads a variable as a task of the same role would read it on each host, and keeps it on the
        controller until the playbook ends. It is what the hosts request for all other steps. No host is visited.
      - V(check) checks the requests before anything is touched. The controller checks the input of roles and its own
        files; one visit to all hosts checks interpreters, disk space, environments and addresses of sources. A second
        visit sends the controller's pip to hosts that need packages of an index, for versions that fit their Python
        (C(pip index versions)). Python 3.9 is too old for that pip, and is not checked. Versions that apt must have
        (drivers, CUDA, NCCL) are looked up in lists apart from the system's. The role checks signatures when it
        configures apt. A host where everything is complete asks no index and no address, and the role need not check
        it again unless the host has changed since.
      - V(choose_pytorch) chooses the build of PyTorch for all hosts together. Where no host has an accelerator or the
        usual build, a second visit asks pip there for the CPU build. That is chosen if all hosts can have it, or have
        it already.
      - V(check_builds) checks archives of what O(hosts) built, C(HOST.tar.gz) in O(folder), as tar packed them. It
        rejects setuid, setgid, devices, pipes, links that leave the folder, absolute paths, and other owners than root.
        So root on a building node gains no more on the others than a program of the training user. It rewrites each
        archive with names, content, links and modes alone.
      - V(lock) resolves what the hosts request, and the wheels of C(.venv), for each operating system among the hosts,
        and writes the lock. apt resolves packages on an empty system of that release and architecture, uv resolves
        wheels. No host is visited. Parts of an existing lock whose request is the same stay as they are. In check mode
        everything is resolved anew, and nothing is written.
      - V(compare) compares a lock with the systems and the requests of the hosts. If it fits, each host simulates with
        the newest lists of its mirrors, apart from its own, which versions apt would install of what is missing.
        Nothing is changed.
      - V(bundle) fetches all files that a lock names, checks their sums, and writes a signed repository of packages for
        each system, requirement files with hashes, a bill of materials, and the sums of all files with a signature. The
        folder gets its name when it is whole. A call that was interrupted is gone on with. In check mode the files are
        listed. Logins are those of C(~/.netrc), or of the file that C(NETRC) names. Where a server still refuses an
        archive, the bundle is incomplete, and the next call tries again. Refused packages and wheels are errors.
      - V(use_bundle) verifies the signature and the sums of a bundle, and compares it with the systems and the requests
        of the hosts, and with the room on their disks. All findings come at once. Then it writes an archive for each
        system of which a host lacks the files; none in check mode.
    type: str
    choices: [request, check, choose_pytorch, check_builds, lock, compare, bundle, use_bundle]
    required: true
  hosts: {description: Inventory names., type: list, elements: str}
  part: {description: Name of the requested part in findings., type: str}
  variable:
    description:
      - Name of the variable, read for each host. V(request) takes a dictionary with C(findings) (on the input),
        C(environment), C(prefix), C(manage_system), C(apt), C(data) and C(sources). For a lock it may have C(packages)
        of the system, C(optional_packages), which the system may lack, C(repository) (packages of another repository),
        C(kept_sources) (as C(sources), which no host asks for now), and C(missing) (C(what) and C(why)).
      - V(choose_pytorch) takes C(environment) (arguments of M(python_environment), with the pins of the CPU build) and
        C(manage_system). It is empty on hosts that leave nothing to choose.
    type: str
  folders:
    description: >-
      Folders on the hosts by the variables that name them. The visit of V(check) finds which of the hosts share each:
      on a file system of another host, one of them leaves a token for a moment, and the others read it.
    type: dict
  user:
    description: User who writes the token, if that user is there and may; otherwise the owner of the folder does.
    type: str
  path: {description: File of the lock., type: path}
  upgrade: {description: Resolve everything anew., type: bool, default: false}
  mirrors:
    description: >-
      Addresses of the distribution's mirrors, C(main) and C(security), instead of those that the controller's apt has.
    type: dict
    default: {}
  controllers:
    description: >-
      Systems of controllers, such as C(debian-12-x86_64), for its python3, or C(debian-12-x86_64-python3.13). Empty for
      those that the lock has, else for this machine and its Python.
    type: list
    elements: str
    default: []
  also:
    description: Targets of make that controllers can run, too.
    type: list
    elements: str
    choices: [kubernetes, hardware, lab, test]
    default: []
  name: {description: Begin of the bundle's name; digits of the lock's sum follow., type: str}
  folder: {description: Where the bundle is written; for V(check_builds) where the archives are., type: path}
  since: {description: "An older bundle, whose files are left out; empty for none.", type: str, default: ""}
  key: {description: Folder of the key that signs bundles; it is made at the first use., type: path}
  version: {description: "Version of trainyard, for the bill of materials.", type: str}
  bundle: {description: Folder of the bundle on the controller., type: str}
  states:
    description: >-
      By host a list, first the stamp of the bundle that it has, then when that was signed, where it is known, and last
      the free KiB for another one.
    type: dict
  node_folder: {description: Folder of the bundle on the nodes., type: str}
  archives: {description: "Folder on the controller for the archives, C(SYSTEM.tar).", type: str}
  fingerprint:
    description: Expected fingerprint of the key; empty for any, of a bundle that only its user and root can change.
    type: str
    default: ""
  older: {description: "Take a bundle, too, that is older than the one that a host has.", type: bool, default: false}
attributes:
  check_mode:
    support: full
"""

EXAMPLES = r"""
- name: Record what is to be installed
  site_software: {step: request, hosts: [n1], part: pytorch, variable: __python_runtime_request}

- name: Ask what prevents an installation
  site_software: {step: check, hosts: [n1], folders: {trainyard_root: /opt/trainyard}, user: train}

- name: Choose the build
  site_software: {step: choose_pytorch, hosts: [n1], variable: __pytorch_offer}

- name: Check the archives before anything is unpacked
  site_software: {step: check_builds, hosts: [n1], folder: /tmp/builds}

- name: Write the lock
  site_software: {step: lock, hosts: [n1, n2], path: inventories/mine/trainyard.lock}

- name: Compare the hosts with the lock
  site_software: {step: compare, path: inventories/mine/trainyard.lock, hosts: "{{ ansible_play_hosts }}"}
  register: locked

- name: Make a bundle
  site_software:
    step: bundle
    path: inventories/mine/trainyard.lock
    name: mine
    folder: /media/usb
    key: ~/.config/trainyard/bundle-key
    version: 0.1.0

- name: Check the bundle
  site_software:
    step: use_bundle
    bundle: /media/usb/mine-4f2a.bundle
    hosts: [n1]
    states: {n1: [none, 9000000]}
    node_folder: /var/lib/trainyard-root/bundle
    archives: /tmp/archives
"""

RETURN = r"""
requests: {description: The requests by host., returned: request, type: dict}
sharing:
  description: >-
    By folder, lists of hosts, each of which sees the same folder. A host of which that is not known is in no list.
  returned: check
  type: dict
summary: {description: A line for each folder that hosts share., returned: check, type: list}
seen:
  description: >-
    The complete parts by host, each with C(of), the request, and C(result), as its role's module would return it
    (M(python_environment)); empty for data sets.
  returned: check
  type: dict
chosen:
  description: >-
    The C(build), V(cpu) or empty for the usual one; C(interpreters) of the CPU build by host; and C(note), one line for
    people where the CPU build is missing.
  returned: choose_pytorch
  type: dict
changes: {description: A line for each version that differs from the lock before., returned: lock, type: list}
lock: {description: File of the lock., returned: lock, type: str}
findings:
  description: All findings, each with host, check, found, expected and action.
  returned: check and compare
  type: list
nodes:
  description: >-
    By host C(environments), the pins of each environment, and C(preferences), the text for apt. With a bundle also
    C(folder), C(system), and C(files), paths on the controller by sum or commit.
  returned: compare and use_bundle
  type: dict
bundle: {description: The folder of the bundle., returned: bundle, type: str}
missing:
  description: >-
    Software that the bundle lacks, C(what) and C(why). What somebody can bring has C(sha256) and C(where), its path
    in the bundle or on the controller.
  returned: bundle
  type: list
stamp: {description: What tells this bundle from others., returned: use_bundle, type: str}
made: {description: "When it was signed, in seconds since 1970.", returned: use_bundle, type: int}
lacking: {description: Hosts that have another bundle or none., returned: use_bundle, type: list}
"""
