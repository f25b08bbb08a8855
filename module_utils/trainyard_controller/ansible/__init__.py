# SPDX-License-Identifier: Apache-2.0
"""The side of Ansible: plugins, tasks, the terminal."""
