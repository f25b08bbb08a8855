# SPDX-License-Identifier: Apache-2.0
"""Kubernetes: what a job is there, as pure functions, which schedulers/kubernetes.py joins. None talks to a cluster.

settings    the variables of a job file that are for Kubernetes only, checked and typed
names       names that a cluster takes
resources   what the four kinds of resource have in common and where they differ
pods        the pods of a job: command, environment, resources, volumes
manifests   a job as manifests
state       the cluster's objects as a job's state
faults      the API's answers as findings
"""
