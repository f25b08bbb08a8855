# SPDX-License-Identifier: Apache-2.0
"""Jobs in Kubernetes, as pure functions without access to a cluster.

scheduler   the plan of a job as manifests
settings    the options of a job file for Kubernetes, checked and typed
names       legal names of objects
resources   the four kinds of resource that a job can be
pods        the pods of a job: command, environment, resources, volumes
manifests   a job as manifests
pod_log     what the pods of a plain Job print
state       the state of a job from the cluster's objects
findings    the API's errors as findings
"""
