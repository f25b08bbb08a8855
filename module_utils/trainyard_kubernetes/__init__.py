# SPDX-License-Identifier: Apache-2.0
"""What talks to a Kubernetes cluster, on the controller, with the official Python client."""
