# SPDX-License-Identifier: Apache-2.0
"""Code of the controller: it visits nodes and keeps the folders of runs. Never sent to a node."""
